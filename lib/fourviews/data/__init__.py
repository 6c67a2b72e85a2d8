"""Real data: found, verified, cached.

Every loader looks in the same places in the same order, and its result has ``.source``, which says
where the data came from:

1. under the folder that ``FOURVIEWS_DATA`` names: the official data unpacked, then the official
   archive (checksum verified), then a subset of it (no checksum);
2. the cache, ``FOURVIEWS_CACHE`` or the system's place for caches;
3. a download from the publisher, resumed if cut, checksum verified; not if ``FOURVIEWS_OFFLINE=1``,
   and what has more than 100 MB only where it is asked for, ``source="official"``;
4. what a Python package ships, named by its loader. It may be something else that serves the same
   purpose; ``.source`` then says what.

Nothing here imports a package of the extra ``data`` before it is used.
"""

from .features.image_tokens import ImageTokens, image_tokens
from .features.pooled_features import pooled_features
from .features.reduction import FeatureReduction, reduce_features
from .features.token_store import TokenStore, token_store
from .files.cache import cache_dir
from .files.checksums import ChecksumError
from .files.download import DownloadError
from .files.extraction import UnsafeArchiveError
from .files.pickles import UnsafePickleError
from .pictures.cifar import cifar10, cifar100
from .pictures.images import ImageSet
from .pictures.photo_crops import photographs
from .pictures.tiny_imagenet import tiny_imagenet
from .relations.generated_scenes import generated_scenes
from .relations.scenes import SceneSet
from .relations.visual_genome import visual_genome
from .sources import DataNotFoundError, Source
from .text.glove import glove
from .text.imdb import imdb
from .text.made_up import made_up_reviews
from .text.reviews import reviews
from .text.sst2 import sst2
from .text.texts import TextSet
from .text.tokens import tokenize
from .text.word_vectors import EmbeddedBatch, Embedding, OutOfVocabulary, WordVectors

__all__ = [
    "ChecksumError",
    "DataNotFoundError",
    "DownloadError",
    "EmbeddedBatch",
    "Embedding",
    "FeatureReduction",
    "ImageSet",
    "ImageTokens",
    "OutOfVocabulary",
    "SceneSet",
    "Source",
    "TextSet",
    "TokenStore",
    "UnsafeArchiveError",
    "UnsafePickleError",
    "WordVectors",
    "cache_dir",
    "cifar10",
    "cifar100",
    "generated_scenes",
    "glove",
    "image_tokens",
    "imdb",
    "made_up_reviews",
    "photographs",
    "pooled_features",
    "reduce_features",
    "reviews",
    "sst2",
    "tiny_imagenet",
    "token_store",
    "tokenize",
    "visual_genome",
]
