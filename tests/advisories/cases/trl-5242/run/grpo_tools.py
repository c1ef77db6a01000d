from trl import GRPOConfig, GRPOTrainer


def search(query: str) -> str:
    """Search the notes.

    Args:
        query: what to look for
    """
    return query


def accuracy_reward(completions: list[str], **answers: list[str]) -> list[float]:
    return [float(answer in text) for text, answer in zip(completions, answers["answer"], strict=True)]


args = GRPOConfig(
    output_dir="out",
    num_generations=8,
    max_completion_length=2048,
    max_tool_calling_iterations=6,
    use_vllm=True,
    vllm_mode="colocate",
)
trainer = GRPOTrainer(
    model="Qwen/Qwen3-4B",
    args=args,
    reward_funcs=accuracy_reward,
    train_dataset=[{"prompt": "What is 6 x 7?", "answer": "42"}],
    tools=[search],
)
trainer.train()
