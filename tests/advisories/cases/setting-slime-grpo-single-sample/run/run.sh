python train_async.py --advantage-estimator grpo --num-rollout 300 --rollout-num-gpus 8 --n-samples-per-prompt 1 --update-weights-interval 1 
