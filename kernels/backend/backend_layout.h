/* Every field of the structs that the program and a device's backend share, in the order of their
 * declarations (kernels/core/layout.h). The program and the plugin compare the digests of this table.
 * ab_census is not included (its room is above this one); increment AB_DEVICE_ABI when it changes. */
#ifndef AB_KERNELS_BACKEND_BACKEND_LAYOUT_H
#define AB_KERNELS_BACKEND_BACKEND_LAYOUT_H

#include "kernels/backend/backend.h"
#include "kernels/core/layout.h"

AB_BEGIN_DECLS

#define AB_BACKEND_FIELDS(FIRST, FIELD, LAST)                                                                \
    FIRST(ab_shape, ndim)                                                                                    \
    FIELD(ab_shape, ndim, dim)                                                                               \
    LAST(ab_shape, dim)                                                                                      \
    FIRST(ab_format, name)                                                                                   \
    FIELD(ab_format, name, bits)                                                                             \
    FIELD(ab_format, bits, precision)                                                                        \
    FIELD(ab_format, precision, emin)                                                                        \
    FIELD(ab_format, emin, emax)                                                                             \
    FIELD(ab_format, emax, infinity)                                                                         \
    FIELD(ab_format, infinity, nan)                                                                          \
    FIELD(ab_format, nan, storage_bytes)                                                                     \
    FIELD(ab_format, storage_bytes, text)                                                                    \
    LAST(ab_format, text)                                                                                    \
    FIRST(ab_tensor, data)                                                                                   \
    FIELD(ab_tensor, data, shape)                                                                            \
    FIELD(ab_tensor, shape, format)                                                                          \
    FIELD(ab_tensor, format, device)                                                                         \
    FIELD(ab_tensor, device, id)                                                                             \
    LAST(ab_tensor, id)                                                                                      \
    FIRST(ab_floats, value)                                                                                  \
    FIELD(ab_floats, value, count)                                                                           \
    LAST(ab_floats, count)                                                                                   \
    FIRST(ab_ints, value)                                                                                    \
    FIELD(ab_ints, value, count)                                                                             \
    LAST(ab_ints, count)                                                                                     \
    FIRST(ab_attr, name)                                                                                     \
    FIELD(ab_attr, name, kind)                                                                               \
    FIELD(ab_attr, kind, offset)                                                                             \
    FIELD(ab_attr, offset, required)                                                                         \
    FIELD(ab_attr, required, fallback)                                                                       \
    FIELD(ab_attr, fallback, low)                                                                            \
    FIELD(ab_attr, low, high)                                                                                \
    FIELD(ab_attr, high, text)                                                                               \
    LAST(ab_attr, text)                                                                                      \
    FIRST(ab_observer, see)                                                                                  \
    FIELD(ab_observer, see, counts)                                                                          \
    FIELD(ab_observer, counts, count)                                                                        \
    LAST(ab_observer, count)                                                                                 \
    FIRST(ab_exec, workspace)                                                                                \
    FIELD(ab_exec, workspace, workspace_bytes)                                                               \
    FIELD(ab_exec, workspace_bytes, training)                                                                \
    FIELD(ab_exec, training, accumulate_half)                                                                \
    FIELD(ab_exec, accumulate_half, tf32)                                                                    \
    FIELD(ab_exec, tf32, fuse)                                                                               \
    FIELD(ab_exec, fuse, sizes_only)                                                                         \
    FIELD(ab_exec, sizes_only, path)                                                                         \
    FIELD(ab_exec, path, observer)                                                                           \
    FIELD(ab_exec, observer, seed)                                                                           \
    FIELD(ab_exec, seed, step)                                                                               \
    FIELD(ab_exec, step, device_step)                                                                        \
    FIELD(ab_exec, device_step, sync)                                                                        \
    LAST(ab_exec, sync)                                                                                      \
    FIRST(ab_tail, addend)                                                                                   \
    FIELD(ab_tail, addend, out)                                                                              \
    FIELD(ab_tail, out, dout)                                                                                \
    FIELD(ab_tail, dout, daddend)                                                                            \
    LAST(ab_tail, daddend)                                                                                   \
    FIRST(ab_op_io, op)                                                                                      \
    FIELD(ab_op_io, op, attrs)                                                                               \
    FIELD(ab_op_io, attrs, state)                                                                            \
    FIELD(ab_op_io, state, in)                                                                               \
    FIELD(ab_op_io, in, param)                                                                               \
    FIELD(ab_op_io, param, out)                                                                              \
    FIELD(ab_op_io, out, tail)                                                                               \
    FIELD(ab_op_io, tail, behind_relu)                                                                       \
    FIELD(ab_op_io, behind_relu, fuses)                                                                      \
    FIELD(ab_op_io, fuses, saved)                                                                            \
    FIELD(ab_op_io, saved, dout)                                                                             \
    FIELD(ab_op_io, dout, din)                                                                               \
    FIELD(ab_op_io, din, dparam)                                                                             \
    FIELD(ab_op_io, dparam, instance)                                                                        \
    FIELD(ab_op_io, instance, params_version)                                                                \
    LAST(ab_op_io, params_version)                                                                           \
    FIRST(ab_op, name)                                                                                       \
    FIELD(ab_op, name, inputs)                                                                               \
    FIELD(ab_op, inputs, optional_inputs)                                                                    \
    FIELD(ab_op, optional_inputs, batch_norm)                                                                \
    FIELD(ab_op, batch_norm, norm)                                                                           \
    FIELD(ab_op, norm, out_as_weight)                                                                        \
    FIELD(ab_op, out_as_weight, mixed_twin)                                                                  \
    FIELD(ab_op, mixed_twin, mixes_formats)                                                                  \
    FIELD(ab_op, mixes_formats, by_code)                                                                     \
    FIELD(ab_op, by_code, is_loss)                                                                           \
    FIELD(ab_op, is_loss, integer_inputs)                                                                    \
    FIELD(ab_op, integer_inputs, maybe_integer)                                                              \
    FIELD(ab_op, maybe_integer, attrs_bytes)                                                                 \
    FIELD(ab_op, attrs_bytes, attrs)                                                                         \
    FIELD(ab_op, attrs, finish_attrs)                                                                        \
    FIELD(ab_op, finish_attrs, is_view)                                                                      \
    FIELD(ab_op, is_view, infer)                                                                             \
    FIELD(ab_op, infer, params)                                                                              \
    FIELD(ab_op, params, saved)                                                                              \
    FIELD(ab_op, saved, backward_needs)                                                                      \
    FIELD(ab_op, backward_needs, needs)                                                                      \
    FIELD(ab_op, needs, prepare)                                                                             \
    FIELD(ab_op, prepare, bind)                                                                              \
    FIELD(ab_op, bind, release)                                                                              \
    FIELD(ab_op, release, forward)                                                                           \
    FIELD(ab_op, forward, backward)                                                                          \
    FIELD(ab_op, backward, flops)                                                                            \
    FIELD(ab_op, flops, backward_ratio)                                                                      \
    FIELD(ab_op, backward_ratio, wide_flops)                                                                 \
    FIELD(ab_op, wide_flops, describe)                                                                       \
    FIELD(ab_op, describe, best_constant)                                                                    \
    FIELD(ab_op, best_constant, elementary)                                                                  \
    LAST(ab_op, elementary)                                                                                  \
    FIRST(ab_scale_rule, dynamic)                                                                            \
    FIELD(ab_scale_rule, dynamic, min_scale)                                                                 \
    FIELD(ab_scale_rule, min_scale, max_scale)                                                               \
    FIELD(ab_scale_rule, max_scale, window)                                                                  \
    LAST(ab_scale_rule, window)                                                                              \
    FIRST(ab_step_state, scale)                                                                              \
    FIELD(ab_step_state, scale, unskipped)                                                                   \
    FIELD(ab_step_state, unskipped, taken)                                                                   \
    FIELD(ab_step_state, taken, step)                                                                        \
    FIELD(ab_step_state, step, batches)                                                                      \
    FIELD(ab_step_state, batches, loss_sum)                                                                  \
    FIELD(ab_step_state, loss_sum, grad_norm)                                                                \
    FIELD(ab_step_state, grad_norm, clip_factor)                                                             \
    FIELD(ab_step_state, clip_factor, found)                                                                 \
    FIELD(ab_step_state, found, skip)                                                                        \
    LAST(ab_step_state, skip)                                                                                \
    FIRST(ab_step_record, scale)                                                                             \
    FIELD(ab_step_record, scale, grad_norm)                                                                  \
    FIELD(ab_step_record, grad_norm, loss)                                                                   \
    FIELD(ab_step_record, loss, overflow)                                                                    \
    FIELD(ab_step_record, overflow, skipped)                                                                 \
    LAST(ab_step_record, skipped)                                                                            \
    FIRST(ab_update_row, value)                                                                              \
    FIELD(ab_update_row, value, lr)                                                                          \
    FIELD(ab_update_row, lr, decay)                                                                          \
    FIELD(ab_update_row, decay, eps)                                                                         \
    FIELD(ab_update_row, eps, coefficient)                                                                   \
    LAST(ab_update_row, coefficient)                                                                         \
    FIRST(ab_unscale_item, to)                                                                               \
    FIELD(ab_unscale_item, to, from)                                                                         \
    FIELD(ab_unscale_item, from, id)                                                                         \
    FIELD(ab_unscale_item, id, adds)                                                                         \
    LAST(ab_unscale_item, adds)                                                                              \
    FIRST(ab_update_item, weight)                                                                            \
    FIELD(ab_update_item, weight, grad)                                                                      \
    FIELD(ab_update_item, grad, factor)                                                                      \
    FIELD(ab_update_item, factor, state)                                                                     \
    FIELD(ab_update_item, state, model)                                                                      \
    LAST(ab_update_item, model)                                                                              \
    FIRST(ab_resident_config, loss)                                                                          \
    FIELD(ab_resident_config, loss, loss_grad)                                                               \
    FIELD(ab_resident_config, loss_grad, unscale)                                                            \
    FIELD(ab_resident_config, unscale, update)                                                               \
    FIELD(ab_resident_config, update, ema)                                                                   \
    FIELD(ab_resident_config, ema, group)                                                                    \
    FIELD(ab_resident_config, group, items)                                                                  \
    FIELD(ab_resident_config, items, groups)                                                                 \
    FIELD(ab_resident_config, groups, batches)                                                               \
    FIELD(ab_resident_config, batches, leave_gradients)                                                      \
    FIELD(ab_resident_config, leave_gradients, update_kind)                                                  \
    FIELD(ab_resident_config, update_kind, clip_norm)                                                        \
    FIELD(ab_resident_config, clip_norm, clip_value)                                                         \
    FIELD(ab_resident_config, clip_value, ema_decay)                                                         \
    FIELD(ab_resident_config, ema_decay, rule)                                                               \
    FIELD(ab_resident_config, rule, window)                                                                  \
    LAST(ab_resident_config, window)                                                                         \
    FIRST(ab_resident_ops, create)                                                                           \
    FIELD(ab_resident_ops, create, destroy)                                                                  \
    FIELD(ab_resident_ops, destroy, set)                                                                     \
    FIELD(ab_resident_ops, set, counter)                                                                     \
    FIELD(ab_resident_ops, counter, begin)                                                                   \
    FIELD(ab_resident_ops, begin, batch)                                                                     \
    FIELD(ab_resident_ops, batch, finish)                                                                    \
    FIELD(ab_resident_ops, finish, mark)                                                                     \
    FIELD(ab_resident_ops, mark, collect)                                                                    \
    FIELD(ab_resident_ops, collect, record_begin)                                                            \
    FIELD(ab_resident_ops, record_begin, record_end)                                                         \
    FIELD(ab_resident_ops, record_end, launch)                                                               \
    FIELD(ab_resident_ops, launch, graph_destroy)                                                            \
    FIELD(ab_resident_ops, graph_destroy, stage_create)                                                      \
    FIELD(ab_resident_ops, stage_create, stage_destroy)                                                      \
    FIELD(ab_resident_ops, stage_destroy, stage_buffers)                                                     \
    FIELD(ab_resident_ops, stage_buffers, stage_send)                                                        \
    FIELD(ab_resident_ops, stage_send, stage_use)                                                            \
    FIELD(ab_resident_ops, stage_use, stage_done)                                                            \
    LAST(ab_resident_ops, stage_done)                                                                        \
    FIRST(ab_tensor_extremes, largest)                                                                       \
    FIELD(ab_tensor_extremes, largest, infinite)                                                             \
    FIELD(ab_tensor_extremes, infinite, nan)                                                                 \
    LAST(ab_tensor_extremes, nan)                                                                            \
    FIRST(ab_row_sums, finite)                                                                               \
    FIELD(ab_row_sums, finite, zero)                                                                         \
    FIELD(ab_row_sums, zero, silent)                                                                         \
    FIELD(ab_row_sums, silent, squares)                                                                      \
    FIELD(ab_row_sums, squares, largest)                                                                     \
    LAST(ab_row_sums, largest)                                                                               \
    FIRST(ab_update_account, nonzero)                                                                        \
    FIELD(ab_update_account, nonzero, lost)                                                                  \
    FIELD(ab_update_account, lost, energy)                                                                   \
    FIELD(ab_update_account, energy, lost_energy)                                                            \
    LAST(ab_update_account, lost_energy)                                                                     \
    FIRST(ab_moment_account, stale)                                                                          \
    FIELD(ab_moment_account, stale, below_eps)                                                               \
    FIELD(ab_moment_account, below_eps, zero)                                                                \
    FIELD(ab_moment_account, zero, ratios)                                                                   \
    FIELD(ab_moment_account, ratios, ratio)                                                                  \
    LAST(ab_moment_account, ratio)                                                                           \
    FIRST(ab_update_sums, cause)                                                                             \
    FIELD(ab_update_sums, cause, moved)                                                                      \
    FIELD(ab_update_sums, moved, moment)                                                                     \
    FIELD(ab_update_sums, moment, subnormal)                                                                 \
    FIELD(ab_update_sums, subnormal, ill)                                                                    \
    FIELD(ab_update_sums, ill, before)                                                                       \
    FIELD(ab_update_sums, before, grad)                                                                      \
    FIELD(ab_update_sums, grad, after)                                                                       \
    FIELD(ab_update_sums, after, stored)                                                                     \
    LAST(ab_update_sums, stored)                                                                             \
    FIRST(ab_update_question, terms)                                                                         \
    FIELD(ab_update_question, terms, second_moment)                                                          \
    FIELD(ab_update_question, second_moment, beta2)                                                          \
    FIELD(ab_update_question, beta2, correction)                                                             \
    FIELD(ab_update_question, correction, eps2)                                                              \
    FIELD(ab_update_question, eps2, decay)                                                                   \
    FIELD(ab_update_question, decay, rows)                                                                   \
    LAST(ab_update_question, rows)                                                                           \
    FIRST(ab_update_counts, count)                                                                           \
    FIELD(ab_update_counts, count, lr)                                                                       \
    FIELD(ab_update_counts, lr, terms)                                                                       \
    FIELD(ab_update_counts, terms, runs)                                                                     \
    FIELD(ab_update_counts, runs, run)                                                                       \
    FIELD(ab_update_counts, run, ratio)                                                                      \
    FIELD(ab_update_counts, ratio, size)                                                                     \
    FIELD(ab_update_counts, size, size_lost)                                                                 \
    FIELD(ab_update_counts, size_lost, rows)                                                                 \
    FIELD(ab_update_counts, rows, largest)                                                                   \
    FIELD(ab_update_counts, largest, weight)                                                                 \
    FIELD(ab_update_counts, weight, state)                                                                   \
    LAST(ab_update_counts, state)                                                                            \
    FIRST(ab_reductions, extremes)                                                                           \
    FIELD(ab_reductions, extremes, places)                                                                   \
    FIELD(ab_reductions, places, row_sums)                                                                   \
    FIELD(ab_reductions, row_sums, elements)                                                                 \
    FIELD(ab_reductions, elements, update)                                                                   \
    FIELD(ab_reductions, update, clip)                                                                       \
    LAST(ab_reductions, clip)                                                                                \
    FIRST(ab_backend, abi)                                                                                   \
    FIELD(ab_backend, abi, layout)                                                                           \
    FIELD(ab_backend, layout, kind)                                                                          \
    FIELD(ab_backend, kind, host_memory)                                                                     \
    FIELD(ab_backend, host_memory, op)                                                                       \
    FIELD(ab_backend, op, cast)                                                                              \
    FIELD(ab_backend, cast, accumulate)                                                                      \
    FIELD(ab_backend, accumulate, unscale)                                                                   \
    FIELD(ab_backend, unscale, update)                                                                       \
    FIELD(ab_backend, update, census)                                                                        \
    FIELD(ab_backend, census, resident)                                                                      \
    FIELD(ab_backend, resident, reductions)                                                                  \
    LAST(ab_backend, reductions)

/* Digest as compiled in the calling file; ab_backend.layout points to it. */
static inline uint64_t ab_backend_layout(void) {
    uint64_t digest = AB_LAYOUT_BEGIN;
    AB_BACKEND_FIELDS(AB_LAYOUT_DIGEST_FIRST, AB_LAYOUT_DIGEST, AB_LAYOUT_DIGEST_LAST)
    return digest;
}

AB_END_DECLS

#endif
