from rewards import accuracy_reward
from tools import dataset, run_python, search
from trl import GRPOConfig, GRPOTrainer

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
    train_dataset=dataset,
    tools=[search, run_python],
)
trainer.train()
