"""`tunbridge methods`."""


def methods() -> None:
    """List the methods: what each is, and what it promises on problems with a known answer."""
    from tunbridge.cli.listing import first_words, promised
    from tunbridge.core.names import METHODS
    from tunbridge.core.tables import to_text

    rows = []
    for name, place in METHODS.places.items():
        kinds = ", ".join(sorted(promised(place) - {"none", "refused"}))
        rows.append({"method": name, "what it is": first_words(place), "promises": kinds or "-"})
    print(to_text(rows).rstrip())
