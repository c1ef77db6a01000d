python train_async.py --advantage-estimator grpo --num-rollout 300 --rollout-num-gpus 8 --n-samples-per-prompt 8 --update-weights-interval 1 --lr-decay-style linear --lr-decay-iters 100
