python pretrain_gpt.py --tensor-model-parallel-size 2 --use-mcore-models --micro-batch-size 4 --train-iters 5000 --lr-decay-iters 500 --lr-decay-style cosine
