"""Parse a `/metrics` page."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]


class Exposition:
    """A page's samples by name and labels; `names` also has families without samples."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        samples = [sample for family in families for sample in family.samples]
        self.samples = {(s.name, frozenset(s.labels.items())): s.value for s in samples}
        self.names = {name for name, _ in self.samples}
        for family in families:
            counts = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
            self.names |= {family.name + end for end in counts.get(family.type, [""])}

    def value(self, name: str, **labels: str) -> float | None:
        """Return a sample's value; None if it is missing."""
        return self.samples.get((name, frozenset(labels.items())))

    def sum(self, name: str) -> float:
        """Return the sum of a name's samples over all labels."""
        return sum(value for (found, _), value in self.samples.items() if found == name)

    def labels(self, name: str) -> set[Labels]:
        """Return the labels of every sample with this name."""
        return {labels for found, labels in self.samples if found == name}
