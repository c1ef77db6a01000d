"""The entry point for notebooks and commands: from a path to a diagnosis, its tables and its figures."""

from ptt.api.agent_traces import export_traces, traces
from ptt.api.compare_runs import compare, compare_kept
from ptt.api.gate_runs import gate, gate_policy
from ptt.api.runs import (
    REPORT,
    Diagnosis,
    check_rules,
    diagnose,
    diagnose_runs,
    ingest,
    kept_run,
    open_run,
    read_settings,
    rule_page,
    rule_pages,
    sample,
    sources,
)
from ptt.api.show_samples import finding_samples, show
from ptt.diagnostics.compare.comparison import Comparison
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import InputError, SettingsError, SeveralRunsError
from ptt.run_location import runs_in

__all__ = [
    "REPORT",
    "Comparison",
    "Diagnosis",
    "InputError",
    "Settings",
    "SettingsError",
    "SeveralRunsError",
    "check_rules",
    "compare",
    "compare_kept",
    "diagnose",
    "diagnose_runs",
    "export_traces",
    "finding_samples",
    "gate",
    "gate_policy",
    "ingest",
    "kept_run",
    "open_run",
    "read_settings",
    "rule_page",
    "rule_pages",
    "runs_in",
    "sample",
    "show",
    "sources",
    "traces",
]
