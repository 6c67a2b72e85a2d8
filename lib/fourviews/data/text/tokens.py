"""Cut a text into the tokens that word vectors know."""

from __future__ import annotations

import re

# In this order: a word in front of n't, n't itself, the other clitics, numbers, words, then any
# single sign. GloVe's vocabulary has the clitics as tokens of their own ("do n't", "it 's"), and it
# has "..." and "--".
_TOKEN = re.compile(
    r"""
    [^\W\d_]+(?=n't\b)
    | n't\b
    | '(?:s|re|ve|ll|d|m)\b
    | \d+(?:[.,]\d+)*(?![^\W_])
    | [^\W_]+
    | \.\.\.
    | --
    | \S
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TYPOGRAPHY = str.maketrans(
    {"’": "'", "‘": "'", "“": '"', "”": '"', "…": "...", "—": "--", "–": "--"}
)


def tokenize(text: str, *, lower: bool = True) -> list[str]:
    """Words, numbers and punctuation of a text, in order, in lower case.

    Contractions are split as in the corpus of GloVe (``don't`` → ``do n't``, ``it's`` → ``it 's``);
    hyphens separate words; line-break tags of web pages count as white space; typographic quotes
    and dashes become plain ones.

    Parameters
    ----------
    text
        Any string.
    lower
        ``False`` keeps capitals, for vectors that know them.

    Returns
    -------
    list of str
        Empty if the text holds white space only.

    Raises
    ------
    ValueError
        If ``text`` is not a string.

    Examples
    --------
    >>> tokenize("Don't sit on the river-bank: it's wet!")
    ['do', "n't", 'sit', 'on', 'the', 'river', '-', 'bank', ':', 'it', "'s", 'wet', '!']
    """
    if not isinstance(text, str):
        raise ValueError(f"text is of type {type(text).__name__}; it needs to be a string")
    text = re.sub(r"<br\s*/?>", " ", text, flags=re.IGNORECASE)
    text = text.translate(_TYPOGRAPHY)
    return _TOKEN.findall(text.lower() if lower else text)
