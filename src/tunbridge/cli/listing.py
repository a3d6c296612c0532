"""What a class is, in words."""


def first_words(cls: type) -> str:
    """The first sentence of a class's docstring, up to its first formula or citation."""
    sentence = (cls.__doc__ or "").strip().split("\n\n")[0].split(":math:")[0].split(":cite:")[0]
    return " ".join(sentence.split()).rstrip(" ,:.")
