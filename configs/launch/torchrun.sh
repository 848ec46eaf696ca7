#!/bin/bash
# A run on several machines without a scheduler: start the same command on each of them.
#
#     HEAD=node-1 NODES=2 configs/launch/torchrun.sh -c configs/experiments/squad.yaml \
#         -c configs/backbones/roberta_large.yaml --run.version=mine --data.train_qa=train.json
#
# HEAD: the host name of the first machine. NODES: the number of machines. GPUS: GPUs per machine, all by default. The
# checkout and the folder of runs must have the same path on all machines. If a process dies, all restart, three
# times at most, and resume from checkpoints/last.ckpt; so does the same command later.
set -euo pipefail

HEAD="${HEAD:?the machine where all processes meet}"
NODES="${NODES:-1}"
GPUS="${GPUS:-$(nvidia-smi --list-gpus | wc -l)}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-4}"
# A new TCP store for every restart: the old one still has the addresses of processes that died.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1

exec torchrun \
    --nnodes="$NODES" \
    --nproc-per-node="$GPUS" \
    --rdzv-backend=c10d \
    --rdzv-endpoint="$HEAD:29500" \
    --rdzv-id=interventune \
    --max-restarts=3 \
    -m interventune.training fit "$@" \
    --trainer.accelerator=gpu \
    --trainer.num_nodes="$NODES" \
    --trainer.devices="$GPUS" \
    --ckpt_path=auto
