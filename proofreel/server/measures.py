"""What a server counts, in Prometheus's text format."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Measures:
    """The counters of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        of = self.registry
        self.requests = Counter("proofreel_requests", "Requests answered.", ["route", "status"], registry=of)
        self.seconds = Histogram("proofreel_request_seconds", "Per request.", ["route"], buckets=SECONDS, registry=of)
        self.claims = Counter("proofreel_claims", "Claims answered.", ["outcome"], registry=of)
        self.failures = Counter("proofreel_failures", "Refused requests and failed claims.", ["reason"], registry=of)
        self.queue = Gauge("proofreel_queue_claims", "Claims that wait or are being scored.", registry=of)
        self.in_flight = Gauge("proofreel_in_flight_requests", "Requests being answered.", registry=of)
        self.batch_claims = Histogram("proofreel_batch_claims", "Claims of a batch.", buckets=SIZES, registry=of)
        self.batch_evidence = Histogram("proofreel_batch_evidence", "Evidences of a batch.", buckets=SIZES, registry=of)
        self.batch_seconds = Histogram("proofreel_batch_seconds", "Seconds of a batch.", buckets=SECONDS, registry=of)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)
