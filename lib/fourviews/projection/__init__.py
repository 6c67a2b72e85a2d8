from .lml import LML, LMLInfo, lml, lml_logits
