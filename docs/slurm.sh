#!/bin/bash
# One job of a sweep for each task of a Slurm array:
#   sbatch --array=0-11 docs/slurm.sh sweeps/first/jobs/tworoom-*.json
# A task that runs out of time saves, is queued again, and goes on where it stopped.
#SBATCH --job-name=lrc
#SBATCH --cpus-per-task=2
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@180
#SBATCH --requeue
#SBATCH --open-mode=append
files=("$@")
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} MKL_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}
stopping=
trap 'stopping=yes; kill -TERM "$job"' TERM
lrc job "${files[$SLURM_ARRAY_TASK_ID]}" &
job=$!
wait "$job"
code=$?
if [ -n "$stopping" ]; then
  wait "$job" # it saves first
  code=$?
  if [ "$code" -eq 143 ]; then
    scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
  fi
fi
exit "$code"
