python3 -m openrlhf.cli.train_ppo_ray --init_kl_coef 0 --kl_target 6.0 --micro_rollout_batch_size 8 --vllm_num_engines 2
