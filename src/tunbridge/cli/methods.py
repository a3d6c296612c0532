"""`tunbridge methods`."""


def methods() -> None:
    """List the methods: what each is, and what it promises on problems with a known answer."""
    from tunbridge.cli.listing import first_words
    from tunbridge.core.names import METHODS
    from tunbridge.core.tables import to_text
    from tunbridge.inference.promises import PROMISES

    rows = []
    for name in METHODS:
        kinds = {promise.kind for promise in PROMISES.get(name, {}).values()} - {"none", "refused"}
        words = first_words(METHODS.place(name))
        rows.append({"method": name, "what it is": words, "promises": ", ".join(sorted(kinds)) or "-"})
    print(to_text(rows).rstrip())
