"""What a class is, in words."""

import re


def first_words(cls: type) -> str:
    """The first sentence of a class's docstring without its citations, up to its first formula."""
    paragraph = (cls.__doc__ or "").strip().split("\n\n")[0]
    sentence = re.sub(r"\s*:cite:\w:`[^`]*`", "", paragraph).split(":math:")[0]
    return " ".join(sentence.replace("`", "").replace("*", "").split()).rstrip(" ,:.")
