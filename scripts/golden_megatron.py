#!/usr/bin/env python3
"""Checkpoints of Megatron-core's ranks, for the tests of the readers: writes tests/golden/megatron.tar.xz.

Run by hand with megatron-core 0.16 and PyTorch 2.11 (CPU); tests need none:

    scripts/golden_megatron.py tests/golden/megatron.tar.xz

ranks/      a GPT with grouped queries and a gated MLP on two tensor-parallel times two pipeline ranks, as
            Megatron-LM's --ckpt-format torch saves it: model_optim_rng.pt of each rank; Adam with fp32 copies
            of the weights, of which m is an eighth and v the square
dist/       the same model and optimizer, saved with megatron.core.dist_checkpointing (torch_dist)
tensor/     a GPT without gates and biases of two tensor-parallel ranks, with the distributed optimizer
truth/      NAME.safetensors: the whole weights, as one process loads them from dist_checkpointing
"""
import argparse
import sys
import tempfile
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from golden_distributed import spawn, start, write
from safetensors.torch import save_file

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "torch"))
from on_cpu import OnCpu  # noqa: E402


def fill(model, rank, stage):
    """Values by name and stage; those of a tensor-parallel parameter by the rank too."""
    for name, parameter in model.named_parameters():
        own = rank if getattr(parameter, "tensor_model_parallel", False) else 0
        generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {stage} {own}".encode()))
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) / 4)


def gpt(gated, first=True, last=True):
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.parallel_state import (get_pipeline_model_parallel_world_size,
                                              get_tensor_model_parallel_world_size)
    from megatron.core.transformer import TransformerConfig

    config = TransformerConfig(
        num_layers=4 if gated else 1, hidden_size=8, num_attention_heads=4,
        num_query_groups=2 if gated else 4, ffn_hidden_size=12, gated_linear_unit=gated,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=gated, use_cpu_initialization=True, bf16=True, params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16, tensor_model_parallel_size=get_tensor_model_parallel_world_size(),
        pipeline_model_parallel_size=get_pipeline_model_parallel_world_size())
    model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=20, max_sequence_length=6,
                     pre_process=first, post_process=last, share_embeddings_and_output_weights=not gated)
    return model.bfloat16(), config


def optimizer_of(model, config, shards):
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    parallel = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=shards)
    model = DistributedDataParallel(config, parallel, model)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=0.125, params_dtype=torch.bfloat16, bf16=True, weight_decay=0.0,
                        use_distributed_optimizer=shards, adam_eps=0.25), [model])
    for parameter in model.parameters():
        parameter.main_grad.zero_()
    optimizer.step()
    for parameter, state in optimizer.optimizer.state.items():
        state["exp_avg"].copy_(parameter.detach() / 8)
        state["exp_avg_sq"].copy_(parameter.detach() ** 2)
    return model, optimizer


def begin(rank, world, port, tensor, pipeline):
    start(rank, world, port)
    from megatron.core import parallel_state

    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *a: None
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=tensor,
                                             pipeline_model_parallel_size=pipeline)
    return parallel_state


def save_rank(model, optimizer, target, **arguments):
    target.mkdir(parents=True)
    torch.save({"args": argparse.Namespace(**arguments), "checkpoint_version": 3.0, "iteration": 5,
                "model": model.state_dict_for_save_checkpoint(), "optimizer": optimizer.state_dict(),
                "opt_param_scheduler": {"max_lr": 0.125, "num_steps": 320},
                "rng_state": [{"torch_rng_state": torch.tensor([1, 2, 3], dtype=torch.uint8)}]},
               target / "model_optim_rng.pt")


def ranks(rank, world, port, folder):
    state = begin(rank, world, port, 2, 2)
    from megatron.core import dist_checkpointing

    tensor, stage = state.get_tensor_model_parallel_rank(), state.get_pipeline_model_parallel_rank()
    with OnCpu():
        model, config = gpt(True, stage == 0, stage == 1)
        fill(model, tensor, stage)
        model, optimizer = optimizer_of(model, config, False)
        save_rank(model, optimizer, folder / "ranks" / "iter_0000005" / f"mp_rank_{tensor:02d}_{stage:03d}",
                  swiglu=True, num_query_groups=2, vocab_size=19, padded_vocab_size=20)
        sharded = {"model": model.module.sharded_state_dict()}
        sharded["optimizer"] = optimizer.sharded_state_dict(sharded["model"])
        sharded.update(iteration=5, checkpoint_version=3.0)
        place = folder / "dist" / "iter_0000005"
        if rank == 0:
            place.mkdir(parents=True)
        dist.barrier()
        dist_checkpointing.save(sharded, str(place))
    dist.barrier()
    dist.destroy_process_group()


def whole(rank, world, port, folder):
    begin(rank, world, port, 1, 1)
    from megatron.core import dist_checkpointing

    with OnCpu():
        model, _ = gpt(True)
        loaded = dist_checkpointing.load({"model": model.sharded_state_dict()},
                                         str(folder / "dist" / "iter_0000005"))["model"]
    save_file({k: v.detach().clone().contiguous() for k, v in loaded.items() if torch.is_tensor(v)},
              folder / "truth" / "ranks.safetensors")
    dist.destroy_process_group()


def tensor(rank, world, port, folder):
    begin(rank, world, port, 2, 1)
    from megatron.core import dist_checkpointing

    with OnCpu():
        model, config = gpt(False)
        fill(model, rank, 0)
        model, optimizer = optimizer_of(model, config, True)
        target = folder / "tensor" / "iter_0000005" / f"mp_rank_{rank:02d}"
        save_rank(model, optimizer, target, swiglu=False)
        optimizer.save_parameter_state(str(target / "distrib_optim.pt"))
        place = folder / "scratch"
        if rank == 0:
            place.mkdir()
        dist.barrier()
        dist_checkpointing.save({"model": model.module.sharded_state_dict()}, str(place))
    dist.barrier()
    dist.destroy_process_group()


def tensor_whole(rank, world, port, folder):
    begin(rank, world, port, 1, 1)
    from megatron.core import dist_checkpointing

    with OnCpu():
        model, _ = gpt(False)
        loaded = dist_checkpointing.load({"model": model.sharded_state_dict()},
                                         str(folder / "scratch"))["model"]
    save_file({k: v.detach().clone().contiguous() for k, v in loaded.items() if torch.is_tensor(v)},
              folder / "truth" / "tensor.safetensors")
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "truth").mkdir()
        spawn(ranks, 4, folder)
        spawn(whole, 1, folder)
        spawn(tensor, 2, folder)
        spawn(tensor_whole, 1, folder)
        for extra in (folder / "scratch").rglob("*"):
            extra.unlink()
        write(folder, sys.argv[1])


if __name__ == "__main__":
    main()
