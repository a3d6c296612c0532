"""`tunbridge methods`."""


def methods() -> None:
    """List the methods, what each is and what it promises of problems with a known answer."""
    from tunbridge.bench.promises import PROMISES
    from tunbridge.core.tables import to_text
    from tunbridge.inference.registry import METHODS

    rows = []
    for name, cls in METHODS.items():
        sentence = (cls.__doc__ or "").strip().split("\n\n")[0].split(":math:")[0].split(":cite:")[0]
        what = " ".join(sentence.split()).rstrip(" ,:.")
        kinds = {promise.kind for promise in PROMISES[name].values()} - {"none"}
        rows.append({"method": name, "what it is": what, "promises": ", ".join(sorted(kinds))})
    print(to_text(rows).rstrip())
