"""What engines print of themselves: settings and versions as they start, and lines on weights and caches."""

from __future__ import annotations

from pathlib import Path

import pytest
from parser_samples import run_file, takers

from ptt.diagnostics.parsers import Context, engine_log
from ptt.diagnostics.parsers.io.setup_files import kept

VLLM = """INFO 06-27 [core.py:58] Initializing a V1 LLM engine (v0.20.0) with config: model='x/Qwen3-30B-A3B', \
speculative_config=SpeculativeConfig(method='mtp', num_spec_tokens=3), dtype=torch.bfloat16, kv_cache_dtype=fp8, \
quantization=None, enable_prefix_caching=True, pooler_config=None, compilation_config={'custom_ops': ['all'], 'mode': 3
INFO Using FLASH_ATTN attention backend.
"""
ARGUMENTS = "INFO non-default args: {'model': 'x', 'enable_lora': True, 'speculative_config': {'method': 'eagle'}}\n"
DEFAULTS = """WARNING Default sampling parameters have been overridden by the model's Hugging Face generation config.
INFO Using default chat sampling params from model: {'repetition_penalty': 1.1, 'top_k': 20}
"""
SGLANG = (
    "[2026-06-27] server_args=ServerArgs(model_path='x', dtype='auto', disable_radix_cache=True, tp_size=2), ready=1\n"
)


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (VLLM, {"speculative_config.method": "mtp", "speculative_config.num_spec_tokens": 3, "dtype": "torch.bfloat16",
                "kv_cache_dtype": "fp8", "quantization": None, "enable_prefix_caching": True,
                "compilation_config.custom_ops": "all", "attention_backend": "FLASH_ATTN"}),
        (ARGUMENTS, {"enable_lora": True, "speculative_config.method": "eagle"}),
        (DEFAULTS, {"sampling_defaults.repetition_penalty": 1.1, "sampling_defaults.top_k": 20,
                    "model_sampling_defaults": True}),
        (SGLANG, {"dtype": "auto", "disable_radix_cache": True, "tp_size": 2}),
    ],
)  # fmt: skip
def test_settings_that_an_engine_prints_are_read(tmp_path: Path, text: str, settings: dict[str, object]) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(text)
    assert takers(run_file(path)) == ["engine_log"]
    found = next(piece for piece in engine_log.PARSER.read(run_file(path)) if isinstance(piece, Context))
    assert settings.items() <= {key.removeprefix("engine."): value for key, value in found.settings.items()}.items()
    assert "engine.ready" not in found.settings
    assert found.in_part


def test_a_log_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("bought milk at step 3\nand went home\n")
    assert takers(run_file(path)) == []
    path.write_text("the web server was replaced\nits kv cache is warm\n" * 3)
    assert takers(run_file(path)) == []


@pytest.mark.parametrize("logged", ["", "2026-01-01 10:00:00,123 - agent - INFO - "])
def test_agents_who_speak_of_servers_and_caches_are_read_as_transcripts(tmp_path: Path, logged: str) -> None:
    path = tmp_path / "transcript.log"
    said = ("User: please restart the web server", "Assistant: the server restarted, the kv cache is warm", "Tool: ok")
    path.write_text("".join(f"{logged}{line}\n" for line in said * 6))
    assert takers(run_file(path)) == ["plain_transcripts"]


@pytest.mark.parametrize(
    "stamp",
    ["INFO 06-27 10:00:00 ", "[2026-06-27 10:00:00 TP0] ", "(Engine pid=7) WARNING ", "(Actor pid=7) ", "[actor] ", ""],
)
def test_an_engines_lines_on_weights_and_caches_are_read_from_logs_only(tmp_path: Path, stamp: str) -> None:
    path = tmp_path / "engine.log"
    path.write_text(f"{stamp}Loading weights took 3 s\n{stamp}Reset prefix cache\n{stamp}ready\n")
    assert takers(run_file(path)) == (["engine_log"] if stamp else [])


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (
            "actor_rollout_ref.model.path",
            "Qwen/Qwen3-Omni-30B-A3B",
            {"model_has_experts", "model_is_qwen3_vl_or_3_5", "model_reads_images"},
        ),
        ("model_name_or_path", "HuggingFaceTB/SmolVLM-Instruct", {"model_reads_images"}),
        ("model", "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", set()),
        ("reward_model.model.path", "Qwen/Qwen2.5-VL-7B", set()),
    ],
)
def test_a_models_name_tells_what_it_is_and_is_not_kept(name: str, value: str, told: set[str]) -> None:
    found = kept({name: value})
    assert value not in found.values()
    assert set(found) - {name} == told
