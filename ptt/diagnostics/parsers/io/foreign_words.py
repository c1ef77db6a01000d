"""The words of metrics and counters in other languages, put into English where a number follows them on a line."""

from __future__ import annotations

import re
from typing import Final

from ptt.diagnostics.parsers.io.console_pairs import PAIR_CHARS

SPOKEN: Final = {
    "loss": "损失 損失 损失值 손실 verlust perte pérdida perdida perda потери потеря лосс ロス",
    "train_loss": "训练损失 訓練損失 학습손실 trainingsverlust",
    "val_loss": "验证损失 驗證損失 検証損失 검증손실 validierungsverlust",
    "reward": "奖励 獎勵 報酬 보상 belohnung récompense recompensa награда",
    "mean_reward": "平均奖励 平均獎勵 平均報酬 평균보상",
    "policy_loss": "策略损失",
    "value_loss": "价值损失",
    "accuracy": "准确率 準確率 精度 正解率 정확도 genauigkeit précision exactitude precisión acurácia точность",
    "perplexity": "困惑度 perplexité perplexität perplejidad перплексия",
    "entropy": "熵 エントロピー 엔트로피 entropie",
    "learning_rate": "学习率 學習率 学習率 학습률 lernrate",
    "grad_norm": "梯度范数 梯度範數 勾配ノルム",
    "epoch": "轮次 训练轮次 エポック 에폭 에포크 epoche époque época эпоха",
    "step": "步数 当前步数 步骤 ステップ 스텝 schritt étape passo paso шаг",
}  # fmt: skip
ENGLISH: Final = {word: name for name, words in SPOKEN.items() for word in words.split()}
NUMBER = r"(?=\s{0,4}[:=]?\s{0,4}[\[(]?\s{0,4}[+-]?(?:\d|nan\b|inf\b))"
WORD: Final = re.compile(
    rf"(?<![^\W\d_])({'|'.join(sorted(map(re.escape, ENGLISH), key=len, reverse=True))}){NUMBER}", re.IGNORECASE
)
ORDINAL: Final = re.compile(r"第\s?(\d{1,9})(?:\s?/\s?(\d{1,9}))?\s?(轮|輪|步|个?epoch|エポック|ステップ)")
STEPS: Final = ("步", "ステップ")
WIDE: Final = str.maketrans("：，；（）＝｜【】", ":,;()=|[]")
ASCII: Final = tuple(word.encode() for word in ENGLISH if word.isascii())


def in_english(line: bytes, lower: bytes) -> bytes:
    """Return a line of a console with the words before its numbers in English."""
    if len(line) > PAIR_CHARS or (line.isascii() and not any(word in lower for word in ASCII)):
        return line
    text = line.decode("utf-8", "replace").translate(WIDE)
    told = WORD.sub(_word, ORDINAL.sub(_ordinal, text))
    return line if told == text else told.encode("utf-8", "replace")


def _word(match: re.Match[str]) -> str:
    return ENGLISH[match[1].lower()]


def _ordinal(match: re.Match[str]) -> str:
    unit = "step" if match[3] in STEPS else "epoch"
    return f"{unit} {match[1]}" + (f"/{match[2]}" if match[2] else "")
