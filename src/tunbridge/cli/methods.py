"""`tunbridge methods`."""

from tunbridge.cli.listing import first_words


def methods() -> None:
    """List the methods, what each is and what it promises of problems with a known answer."""
    from tunbridge.bench.promises import PROMISES
    from tunbridge.core.tables import to_text
    from tunbridge.inference.registry import METHODS

    rows = []
    for name, cls in METHODS.items():
        kinds = {promise.kind for promise in PROMISES.get(name, {}).values()} - {"none", "refused"}
        rows.append({"method": name, "what it is": first_words(cls), "promises": ", ".join(sorted(kinds)) or "-"})
    print(to_text(rows).rstrip())
