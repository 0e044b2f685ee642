#!/usr/bin/env python3
"""Layouts of Megatron-core's ranks beyond golden_megatron.py: writes tests/golden/megatron_layouts.tar.xz.

Run by hand with megatron-core 0.16 and PyTorch 2.11 (CPU); tests need none:

    scripts/golden_megatron_layouts.py tests/golden/megatron_layouts.tar.xz

experts/    four experts of two expert-parallel times two tensor-parallel ranks
chunks/     interleaved stages: two chunks of one layer each on two pipeline ranks
groups/     two groups of queries on four tensor-parallel ranks
truth/      NAME.safetensors: the whole weights, as one process loads them from dist_checkpointing

Rank files are named and filled as Megatron-LM's --ckpt-format torch --no-save-optim does it.
"""
import argparse
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from golden_distributed import spawn, start, write
from golden_megatron import OnCpu
from safetensors.torch import save_file

LAYOUTS = {  # name: processes, tensor, pipeline, chunks, expert
    "experts": (4, 2, 1, None, 2),
    "chunks": (2, 1, 2, 2, 1),
    "groups": (4, 4, 1, None, 1),
}
CONFIG = {
    "experts": dict(num_layers=2, num_moe_experts=4, moe_ffn_hidden_size=6, moe_router_topk=2,
                    gated_linear_unit=True),
    "chunks": dict(num_layers=4, ffn_hidden_size=12),
    "groups": dict(num_layers=1, num_query_groups=2, ffn_hidden_size=12),
}


def begin(rank, world, port, tensor=1, pipeline=1, chunks=None, expert=1):
    start(rank, world, port)
    from megatron.core import parallel_state

    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *a: None
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline,
        virtual_pipeline_model_parallel_size=chunks, expert_model_parallel_size=expert)
    return parallel_state


def gpt(name, tensor=1, pipeline=1, chunks=None, expert=1, first=True, last=True, chunk=None):
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    config = TransformerConfig(
        hidden_size=8, num_attention_heads=4, add_bias_linear=False, use_cpu_initialization=True, bf16=True,
        params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline, virtual_pipeline_model_parallel_size=chunks,
        expert_model_parallel_size=expert, **CONFIG[name])
    spec = get_gpt_layer_local_spec(num_experts=CONFIG[name].get("num_moe_experts"))
    return GPTModel(config, spec, vocab_size=20, max_sequence_length=6, pre_process=first, post_process=last,
                    share_embeddings_and_output_weights=False, vp_stage=chunk).bfloat16()


def fill(model, chunk, stage, tensor, expert):
    """Values by name, chunk and stage, and by the rank where the parameter is a part or an expert's."""
    for name, parameter in model.named_parameters():
        part = tensor if getattr(parameter, "tensor_model_parallel", False) else 0
        own = expert if "local_experts" in name else 0
        generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {chunk} {stage} {part} {own}".encode()))
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) / 4)


def models(name, state, sizes):
    """The chunks of this rank."""
    _, tensor, pipeline, chunks, expert = sizes
    stage = state.get_pipeline_model_parallel_rank()
    for chunk in range(chunks or 1):
        model = gpt(name, tensor, pipeline, chunks, expert, stage == 0 and chunk == 0,
                    stage == pipeline - 1 and chunk == (chunks or 1) - 1, chunk if chunks else None)
        fill(model, chunk, stage, state.get_tensor_model_parallel_rank(),
             state.get_expert_model_parallel_rank())
        yield f"model{chunk}" if chunks else "model", model


def ranks(rank, world, port, name, folder):
    sizes = LAYOUTS[name]
    state = begin(rank, world, port, *sizes[1:])
    from megatron.core import dist_checkpointing

    _, tensor, pipeline, chunks, expert = sizes
    place = f"mp_rank_{state.get_tensor_model_parallel_rank():02d}"
    if pipeline > 1:
        place += f"_{state.get_pipeline_model_parallel_rank():03d}"
    if expert > 1:
        place += f"_{state.get_expert_model_parallel_rank():03d}"
    target = folder / name / "iter_0000005" / place
    scratch = folder / "scratch" / name
    saved = {"args": argparse.Namespace(num_query_groups=CONFIG[name].get("num_query_groups", 1),
                                        group_query_attention="num_query_groups" in CONFIG[name],
                                        tensor_model_parallel_size=tensor,
                                        pipeline_model_parallel_size=pipeline,
                                        expert_model_parallel_size=expert),
             "checkpoint_version": 3.0, "iteration": 5}
    with OnCpu():
        sharded = {}
        for key, model in models(name, state, sizes):
            saved[key] = model.state_dict_for_save_checkpoint()
            sharded[key] = model.sharded_state_dict()
        target.mkdir(parents=True)
        torch.save(saved, target / "model_optim_rng.pt")
        if rank == 0:
            scratch.mkdir(parents=True)
        dist.barrier()
        dist_checkpointing.save(sharded, str(scratch))
    dist.barrier()
    dist.destroy_process_group()


def whole(rank, world, port, name, folder):
    begin(rank, world, port)
    from megatron.core import dist_checkpointing

    with OnCpu():
        loaded = dist_checkpointing.load({"model": gpt(name).sharded_state_dict()},
                                         str(folder / "scratch" / name))["model"]
    save_file({k: v.detach().clone().contiguous() for k, v in loaded.items() if torch.is_tensor(v)},
              folder / "truth" / f"{name}.safetensors")
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "truth").mkdir()
        for name in LAYOUTS:
            spawn(ranks, LAYOUTS[name][0], name, folder)
            spawn(whole, 1, name, folder)
        shutil.rmtree(folder / "scratch")
        write(folder, sys.argv[1])


if __name__ == "__main__":
    main()
