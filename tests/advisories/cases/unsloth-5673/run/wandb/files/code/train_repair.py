import unsloth
from unsloth import FastLanguageModel
from datasets import load_from_disk
from trl import GRPOConfig, GRPOTrainer
from trl.experimental.openenv import generate_rollout_completions
from repair_env import RepairEnv, render_feedback

MAX_TURNS = 3
model, tokenizer = FastLanguageModel.from_pretrained(
    "unsloth/Qwen3-4B-Instruct-2507", max_seq_length=8192, load_in_4bit=False, fast_inference=True, max_lora_rank=32
)
model = FastLanguageModel.get_peft_model(model, r=32, lora_alpha=32, use_gradient_checkpointing="unsloth")


def rollout_func(prompts, trainer):
    out = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": [], "solved": []}
    for prompt in prompts:
        env = RepairEnv(prompt)
        ids, logps, mask = [], [], []
        history = prompt
        for turn in range(MAX_TURNS):
            gen = generate_rollout_completions(trainer, [history])[0]
            if turn == 0:
                first_prompt = gen["prompt_ids"]
            ids += gen["completion_ids"]
            logps += gen["logprobs"]
            mask += [1] * len(gen["completion_ids"])
            feedback = env.step(gen["text"])
            if env.done:
                break
            fb = tokenizer(render_feedback(feedback), add_special_tokens=False)["input_ids"]
            ids += fb
            logps += [0.0] * len(fb)
            mask += [0] * len(fb)
            history = env.history()
        out["prompt_ids"].append(first_prompt)
        out["completion_ids"].append(ids)
        out["logprobs"].append(logps)
        out["env_mask"].append(mask)
        out["solved"].append(env.score)
    return out


args = GRPOConfig(
    output_dir="outputs/run",
    importance_sampling_level="sequence",
    beta=0.04,
    loss_type="grpo",
    learning_rate=5e-6,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=4,
    num_generations=8,
    max_completion_length=4096,
    use_vllm=True,
    logging_steps=1,
    report_to="wandb",
)
trainer = GRPOTrainer(
    model=model,
    args=args,
    train_dataset=load_from_disk("data/repair"),
    reward_funcs=[lambda completions, solved, **kw: solved],
    rollout_func=rollout_func,
)
trainer.train()
