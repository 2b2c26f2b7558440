"""What a `/metrics` page says, as numbers."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


class Exposition:
    """The samples of a page by name and labels; `names` has also families without a sample."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        samples = [sample for family in families for sample in family.samples]
        self.samples = {(s.name, frozenset(s.labels.items())): s.value for s in samples}
        self.names = {name for name, _ in self.samples}
        for family in families:
            counts = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
            self.names |= {family.name + end for end in counts.get(family.type, [""])}

    def value(self, name: str, **labels: str) -> float | None:
        """Return a sample's value; None where there is none."""
        return self.samples.get((name, frozenset(labels.items())))

    def sum(self, name: str) -> float:
        """Return the sum of a name's samples, whatever their labels."""
        return sum(value for (found, _), value in self.samples.items() if found == name)

    def labels(self, name: str) -> set[Labels]:
        """Return the labels of every sample of a name."""
        return {labels for found, labels in self.samples if found == name}
