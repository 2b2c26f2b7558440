"""Records of attempts, stored by the name of their kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forge_schema.model.attempt_records import (
    ArtifactRecord,
    BeginsWith,
    CheckpointRecord,
    LogChunkRecord,
    MetricLines,
    MetricRecord,
    ReportedResult,
    ReportedTests,
    Sample,
    Samples,
    StoredArtifacts,
    Tested,
)
from forge_schema.queue.attempt_records import Records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from forge_schema.model.lease import Fence


class NamedRecords(Records):
    """`add_metrics(fence, lines)` is `record(fence, MetricLines(lines))`, and so on."""

    def add_log_chunk(self, fence: Fence, chunk: LogChunkRecord) -> bool:
        return self.record(fence, chunk)

    def add_checkpoint(self, fence: Fence, checkpoint: CheckpointRecord) -> bool:
        return self.record(fence, checkpoint)

    def add_beginning(self, fence: Fence, attempt: int, number: int) -> bool:
        return self.record(fence, BeginsWith(attempt, number))

    def add_artifacts(self, fence: Fence, artifacts: Sequence[ArtifactRecord]) -> bool:
        return self.record(fence, StoredArtifacts(list(artifacts)))

    def add_metrics(
        self, fence: Fence, lines: Sequence[MetricRecord], *, progress: float | None = None
    ) -> bool:
        return self.record(fence, MetricLines(list(lines), progress))

    def add_samples(self, fence: Fence, samples: Sequence[Sample]) -> bool:
        return self.record(fence, Samples(list(samples)))

    def add_result(self, fence: Fence, values: Mapping[str, Any]) -> bool:
        return self.record(fence, ReportedResult(dict(values)))

    def add_tests(self, fence: Fence, tests: Sequence[Tested]) -> bool:
        return self.record(fence, ReportedTests(list(tests)))
