CUDA_VISIBLE_DEVICES=0 \
swift rollout \
    --model Qwen/Qwen3-4B-Instruct-2507 \
    --vllm_use_async_engine true \
    --vllm_enable_lora true \
    --vllm_max_lora_rank 16 \
    --multi_turn_scheduler toy_scheduler \
    --max_turns 2 \
    --external_plugins plugin/toy_scheduler.py \
    --port 8000
