#!/bin/bash
# node rank from the scheduler; rollout server on its own 8-GPU node: swift rollout --model Qwen/Qwen3-32B --vllm_tensor_parallel_size 8 --port 8000
NNODES=4 NODE_RANK=$RANK MASTER_ADDR=10.12.3.10 MASTER_PORT=29500 NPROC_PER_NODE=8 \
megatron rlhf --rlhf_type grpo --config grpo_32b.yaml
