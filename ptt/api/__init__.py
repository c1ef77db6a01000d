"""The entry point for notebooks and commands: from a path to a diagnosis, its tables and its figures."""

from ptt.api.answers import Comparison, GateReport, TraceDiagnosis
from ptt.api.runs import (
    REPORT,
    Diagnosis,
    advisory_database,
    advisory_named,
    check_config,
    check_rules,
    diagnose,
    diagnose_runs,
    finding_samples,
    ingest,
    kept_run,
    open_run,
    read_settings,
    rule_page,
    rule_pages,
    sample,
    settings_with,
    show,
    sources,
)
from ptt.api.sets_of_runs import compare, compare_kept, export_traces, gate, gate_policy, traces
from ptt.diagnostics.config import Settings
from ptt.diagnostics.errors import InputError, SettingsError, SeveralRunsError
from ptt.run_location import runs_in

__all__ = [
    "REPORT",
    "Comparison",
    "Diagnosis",
    "GateReport",
    "InputError",
    "Settings",
    "SettingsError",
    "SeveralRunsError",
    "TraceDiagnosis",
    "advisory_database",
    "advisory_named",
    "check_config",
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
    "settings_with",
    "show",
    "sources",
    "traces",
]
