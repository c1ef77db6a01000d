"""What `ptt advisories`, `ptt check-config`, the gate and every output say of advisories."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from ptt import api
from ptt.cli.app import app
from ptt.diagnostics.model import Strength

RUN = Path(__file__).parent / "cases" / "trl-5312" / "run"
OWN = """
id = "ours-1"
summary = "Our patched loader drops the last batch"
date = 2031-01-01
kind = "bug"
severity = "medium"
effect = "A tenth of the data is never seen."
references = [{ url = "https://example.org/1", shows = "source" }]
[affected]
framework = "trl"
[settings]
"use_vllm" = true
[change]
line = "drop_last=False"
"""
ALLOW = '[[gate.allow]]\nfinding = "advisory:trl-5312"\nowner = "ann"\nreason = "patched"\nexpires = 2031-05-01\n'


def words(result: Result) -> str:
    return " ".join(result.stdout.split())


def own_folder(tmp_path: Path, text: str = OWN) -> Path:
    folder = tmp_path / "own"
    folder.mkdir(exist_ok=True)
    (folder / "ours-1.toml").write_text(text, encoding="utf-8")
    return folder


class TestAdvisories:
    def test_all_are_listed_and_one_is_explained(self, invoke: Callable[..., Result]) -> None:
        listed, one = invoke("advisories"), invoke("advisories", "trl-5312")
        assert (listed.exit_code, one.exit_code) == (0, 0)
        assert "trl-5312" in listed.stdout
        assert "vllm_enable_sleep_mode=False" in one.stdout
        assert "https://github.com/huggingface/trl/issues/5312" in one.stdout

    def test_a_name_that_is_neither_names_the_nearest(self, invoke: Callable[..., Result]) -> None:
        done = invoke("advisories", "trl-5313")
        assert done.exit_code == 2
        assert "trl-5312" in done.stderr

    def test_a_run_with_a_cause_fails_and_says_why(self, invoke: Callable[..., Result]) -> None:
        done = invoke("advisories", RUN)
        assert done.exit_code == 3
        assert "Causes: version and settings are affected" in words(done)
        assert "`vllm_enable_sleep_mode = true`" in words(done)
        assert invoke("advisories", RUN, "--fail-on", "never").exit_code == 0

    def test_a_run_without_any_setup_is_blind(self, invoke: Callable[..., Result], tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        rows = [json.dumps({"step": step, "reward": 0.5}) for step in range(1, 4)]
        (tmp_path / "run" / "log.jsonl").write_text("\n".join(rows), encoding="utf-8")
        assert invoke("advisories", "run").exit_code == 4

    def test_own_ones_are_added_and_say_where_they_come_from(
        self, invoke: Callable[..., Result], tmp_path: Path
    ) -> None:
        report = invoke("advisories", RUN, "--advisories", own_folder(tmp_path), "--json")
        matches = {match["id"]: match for match in json.loads(report.stdout)["advisories"]["matches"]}
        assert matches["ours-1"]["strength"] == "note"
        assert matches["ours-1"]["source"].endswith("own")
        assert matches["trl-5312"]["source"] == ""

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('"use_vllm" = true', "", "settings is empty"),
            ('severity = "medium"', 'severity = "dire"', "severity is 'dire'; it can be critical"),
            ("drops the last batch", "drops the last batch.", "ends with a full stop"),
            ('"use_vllm" = true', '"use_vllm" = { abov = 1 }', "unknown key 'abov'; is above meant?"),
            ('"use_vllm" = true', '"use_vllm" = { default = 1 }', "asks nothing"),
            ("[settings]", '[signature]\nany_finding = ["kl-zeroed"]\n[settings]', "is kl-zero meant?"),
            ('framework = "trl"', '[[affected.packages]]\nname = "trl"\nintroduced = "a.b"', "no version of PEP 440"),
            ('framework = "trl"', '[[affected.packages]]\nname = "trl"\nintroduced = "2"\nfixed = "1"', "no version"),
        ],
    )
    def test_a_wrong_one_is_refused_with_the_key(
        self, invoke: Callable[..., Result], tmp_path: Path, old: str, new: str, said: str
    ) -> None:
        done = invoke("advisories", "--advisories", own_folder(tmp_path, OWN.replace(old, new, 1)))
        assert done.exit_code == 2
        assert said in " ".join(done.stderr.split())


class TestCheckConfig:
    def test_a_config_that_is_known_to_go_wrong_fails(self, invoke: Callable[..., Result], tmp_path: Path) -> None:
        config = tmp_path / "train.py"
        config.write_text(
            "from trl import GRPOConfig\nargs = GRPOConfig('out', use_vllm=True, vllm_enable_sleep_mode=True,\n"
            "    num_generations=8, report_to=reporter())\n",
            encoding="utf-8",
        )
        done = invoke("check-config", "train.py", "--package", "trl==1.2.0")
        assert done.exit_code == 3
        assert "trl-5312" in done.stdout
        assert "Write `vllm_enable_sleep_mode=False` in GRPOConfig" in words(done)
        unknown = invoke("check-config", "train.py")
        assert unknown.exit_code == 0
        assert "Depends on the installed version" in words(unknown)
        assert "(trl >=0.28.0,<1.10.0)." in words(unknown)
        assert "trl-5312" not in invoke("check-config", "train.py", "--package", "trl==1.10.0").stdout

    def test_a_schedule_that_ends_before_training_fails_without_any_version(
        self, invoke: Callable[..., Result], tmp_path: Path
    ) -> None:
        (tmp_path / "a.yaml").write_text("max_steps: 100\nwarmup_steps: 200\nnum_generations: 8\n", encoding="utf-8")
        done = invoke("check-config", "a.yaml")
        assert (done.exit_code, "setting-warmup-outlasts-training" in done.stdout) == (3, True)

    def test_an_empty_value_is_read_as_none(self, invoke: Callable[..., Result], tmp_path: Path) -> None:
        script = 'local suffix=""\nswift rlhf --rlhf_type grpo --run_name "" --num_generations 8 --beta=\n'
        (tmp_path / "run.sh").write_text(script, encoding="utf-8")
        done = invoke("check-config", "run.sh")
        assert (done.exit_code, "Framework: ms-swift" in done.stdout) == (0, True)

    def test_what_was_not_held_against_a_file_is_said(self, invoke: Callable[..., Result], tmp_path: Path) -> None:
        (tmp_path / "a.sh").write_text("python mine.py --beta $BETA --rate 1e-6 --name ${NAME}\n", encoding="utf-8")
        said = words(invoke("check-config", "a.sh"))
        assert "No advisory applies. The framework is not recognised" in said
        assert "Not read: 2 values given by variables of the shell." in said

    @pytest.mark.parametrize(
        ("setting", "named"),
        [("vllm_mode: colocate", True), ("vllm_device: cuda:3", False)],  # of 0.18 and later, and before it
    )
    def test_a_setting_of_another_release_rules_a_bug_out(
        self, invoke: Callable[..., Result], tmp_path: Path, setting: str, named: bool
    ) -> None:
        (tmp_path / "a.yaml").write_text(f"{setting}\nnum_generations: 8\nuse_vllm: true\n", encoding="utf-8")
        assert ("trl-3992" in invoke("check-config", "a.yaml").stdout) is named

    def test_a_file_without_settings_is_blind_and_none_is_unreadable(
        self, invoke: Callable[..., Result], tmp_path: Path
    ) -> None:
        (tmp_path / "empty.yaml").write_text("# nothing\n", encoding="utf-8")
        assert invoke("check-config", "empty.yaml").exit_code == 4
        assert invoke("check-config", "missing.yaml").exit_code == 5


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `ptt diagnose` wrote, with an advisory of one's own beside those that come with ptt."""
    folder = tmp_path_factory.mktemp("judged")
    own = own_folder(folder, OWN.replace("Our patched loader", "The zqorblat loader"))
    done = CliRunner().invoke(app, ["diagnose", str(RUN), "--out", str(folder / "o"), "--advisories", str(own)])
    (folder / "o" / "printed.txt").write_text(done.stdout, encoding="utf-8")
    return folder / "o"


class TestOutputs:
    def test_the_cause_stands_in_every_output(self, judged: Path, invoke: Callable[..., Result]) -> None:
        printed, page = (
            " ".join((judged / name).read_text(encoding="utf-8").split()) for name in ("printed.txt", "report.html")
        )
        assert "Known bug trl-5312" in printed
        assert (
            "1 may apply (ours-1: The zqorblat loader drops the last batch); `ptt advisories RUN` says why" in printed
        )
        report = json.loads((judged / "findings.json").read_text(encoding="utf-8"))["advisories"]
        assert report["version"]
        assert [match["id"] for match in report["matches"] if match["strength"] == "cause"] == ["trl-5312"]
        assert "vllm_enable_sleep_mode=False" in re.sub(r"<[^>]*>", "", page)
        assert "a newer one may know more" in page
        invoke("report", judged, "--postmortem", "--out", "p")
        assert "trl-5312" in Path("p/postmortem.md").read_text(encoding="utf-8").replace("\\", "")

    def test_what_findings_json_says_is_read_back(
        self, judged: Path, invoke: Callable[..., Result], tmp_path: Path
    ) -> None:
        copy = tmp_path / "findings.json"
        copy.write_bytes((judged / "findings.json").read_bytes())
        again = json.loads(invoke("report", copy, "--json", "--out", "p").stdout)
        assert again["advisories"] == json.loads(copy.read_text(encoding="utf-8"))["advisories"]

    def test_a_redacted_report_keeps_what_is_public_and_no_text_of_ones_own(
        self, judged: Path, invoke: Callable[..., Result]
    ) -> None:
        shared = invoke("report", judged, "--redact", "--json", "--out", "p").stdout
        matches = {match["id"]: match for match in json.loads(shared)["advisories"]["matches"]}
        assert "zqorblat" not in shared
        assert matches["trl-5312"]["change"] == "vllm_enable_sleep_mode=False"
        assert matches["trl-5312"]["settings"]["vllm_enable_sleep_mode"] is True
        assert matches["an-own-advisory"]["settings"] == {}


class TestGate:
    @pytest.mark.parametrize(
        ("table", "code"),
        [
            ('severity = "critical"', 3),
            ('severity = "never"\nids = ["trl-5312"]', 3),
            ('severity = "never"\nids = ["trl-2615"]', 0),
        ],
    )
    def test_by_severity_and_by_id(self, invoke: Callable[..., Result], tmp_path: Path, table: str, code: int) -> None:
        policy = f'[gate]\nseverity = "never"\nmin_steps = 1\nmax_lost = 1\n[gate.advisories]\n{table}\n'
        (tmp_path / "ptt.toml").write_text(policy, encoding="utf-8")
        done = invoke("gate", RUN, "--junit", "j.xml", "--sarif", "s.json", "--github", "--explain")
        assert done.exit_code == code, done.stdout
        failed = [case.get("name", "") for case in ElementTree.parse("j.xml").iter("testcase") if case.find("failure")]
        rules = [item["ruleId"] for item in json.loads((tmp_path / "s.json").read_text())["runs"][0]["results"]]
        assert ("advisory:trl-5312" in rules) is (code == 3)
        assert any("trl-5312" in name for name in failed) is (code == 3) or code == 3
        assert ("::error" in done.stdout) is (code == 3)

    def test_an_allowance_lets_it_pass_until_its_day(self, invoke: Callable[..., Result], tmp_path: Path) -> None:
        policy = '[gate]\nseverity = "never"\nmin_steps = 1\nmax_lost = 1\n[gate.advisories]\nseverity = "high"\n'
        (tmp_path / "ptt.toml").write_text(policy + ALLOW, encoding="utf-8")
        assert invoke("gate", RUN, "--as-of", "2031-05-01").exit_code == 0
        assert invoke("gate", RUN, "--as-of", "2031-05-02").exit_code == 3

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('[gate.advisories]\nids = ["trl-5313"]', "'trl-5313' is no advisory; is"),
            ('[gate.advisories]\nseverity = "never"', "no advisory could ever fail a run"),
            (ALLOW, "the allowance does nothing"),
        ],
    )
    def test_what_means_nothing_is_refused(
        self, invoke: Callable[..., Result], tmp_path: Path, text: str, said: str
    ) -> None:
        (tmp_path / "ptt.toml").write_text(f"[gate]\nmin_steps = 30\n{text}\n", encoding="utf-8")
        done = invoke("gate", RUN)
        assert done.exit_code == 2
        assert said in " ".join(done.stderr.split())


class TestWhatIsNotRecorded:
    """A run of TRL that leaves no settings: what speaks for an advisory is what its log holds, and a version."""

    def named(self, folder: Path, length: str, *, packages: str = "") -> dict[str, Strength]:
        """Return the advisories of a run with many cut-off completions and a growing KL, logged as a release does."""
        rows = [
            {"step": step, "reward": 0.5 + 0.1 * (step % 3), "reward_std": 0.2, "kl": 0.05 * step,
             "completions/clipped_ratio": 0.3, length: 200.0}
            for step in range(1, 61)
        ]  # fmt: skip
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": 60, "log_history": rows}), "utf-8")
        (folder / "requirements.txt").write_text(packages, "utf-8")
        report = api.diagnose(folder, one_run=True).advisories
        assert report is not None
        assert report.framework == "trl"
        return {match.id: match.strength for match in report.matches}

    def test_a_bug_of_what_is_off_by_default_is_possible_only_where_a_version_speaks_for_it(
        self, tmp_path: Path
    ) -> None:
        assert "trl-6439" not in self.named(tmp_path, "completions/mean_length")
        assert self.named(tmp_path, "completions/mean_length", packages="trl==1.5.0")["trl-6439"] is Strength.POSSIBLE

    def test_a_metric_of_later_releases_rules_an_old_bug_out(self, tmp_path: Path) -> None:
        assert "trl-3029" in self.named(tmp_path, "completion_length")
        assert "trl-3029" not in self.named(tmp_path, "completions/mean_length")
