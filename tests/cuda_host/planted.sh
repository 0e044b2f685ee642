# Mistakes planted in copies of the CUDA sources: the emulated tests must fail on each. A plant is a change by
# sed, the source that is compiled again with it, and the test that must notice.
# Usage: planted.sh few|all|libraries; libraries: mistakes in what cuBLASLt and cuDNN are told
# From CMake: EMULATED (folder of the emulated plugin, with objects.txt and flags.txt), TESTS (folder of the
# tests), SOURCE (the tree), CXX.
set -u
which=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
count=0

# plant NAME CHANGED-FILE SED-PROGRAM COMPILED-SOURCE TEST
plant() {
    name=$1 changed=$2 program=$3 source=$4 test=$5
    count=$((count + 1))
    mkdir -p "$work/$name/$(dirname "$changed")" "$work/$name/$(dirname "$source")"
    cp "$SOURCE/$source" "$work/$name/$source"
    sed "$program" "$SOURCE/$changed" >"$work/$name/$changed"
    if cmp -s "$SOURCE/$changed" "$work/$name/$changed"; then
        echo "$name: the change finds nothing to change in $changed"
        failures=$((failures + 1))
        return
    fi
    # shellcheck disable=SC2046 # lists of words
    if ! "$CXX" -x c++ -I"$work/$name" $(cat "$EMULATED/flags.txt") -w -c "$work/$name/$source" \
        -o "$work/$name/object.o" ||
        ! "$CXX" -shared -o "$work/$name/libampbench_cuda.so" "$work/$name/object.o" \
            $(grep -v "/$source.o\$" "$EMULATED/objects.txt") -ldl; then
        echo "$name: the changed source does not compile"
        failures=$((failures + 1))
        return
    fi
    AMPBENCH_PLUGIN_DIR=$work/$name LD_LIBRARY_PATH=$EMULATED:${LD_LIBRARY_PATH:-} timeout 600 \
        "$TESTS/$test" >"$work/$name/log" 2>&1
    code=$?
    if [ $code -eq 0 ] || [ $code -eq 77 ] || [ $code -eq 124 ]; then # 124: out of time
        echo "$name: $test did not notice (status $code)"
        failures=$((failures + 1))
    else
        echo "$name: $test ended with $code: $(grep -m1 -E '^emulated:|ERROR' "$work/$name/log")"
    fi
}

gemm=kernels/cuda/cuda_gemm.cu
census=kernels/census/census.cu
fold=kernels/cuda/cuda_fold.cuh
if [ "$which" != libraries ]; then
    plant missing-barrier $gemm '/load_tile(&b, p.b/,/add_tile/s/__syncthreads();//' $gemm test_gpu_ops_matmul
    plant race-in-a-reduction $fold '/held\[threadIdx.x \/ 32\] = x/{n;d}' $census test_gpu_device
fi
if [ "$which" = all ]; then
    ops=kernels/cuda/cuda_ops.cuh
    plant off-by-one-at-odd-sizes $ops 's/i = packs \* AB_PACK + thread;/i = packs * AB_PACK + thread + 1;/' \
        kernels/ops/elementwise/unary.cu test_gpu_ops_activations
    plant wrong-shuffle-width $fold \
        's/(0xffffffffu, x, step)/(0xffffffffu, x, step, 16)/' \
        kernels/ops/norm/norm_rows.cu test_gpu_ops_norms
    plant wrong-stride kernels/ops/product/matmul.cu \
        's/s.step_b = which == BY_B ? g.m \* g.n/s.step_b = false ? 0/' \
        kernels/ops/product/matmul.cu test_gpu_ops_matmul
    plant missing-zeroing $census '/cudaMemsetAsync(table, 0/d' $census test_gpu_device
    backend=kernels/cuda/backend/backend_cuda.cu
    plant wrong-grid-bound $backend 's/(columns + SUM_COLUMNS - 1) \/ SUM_COLUMNS/columns \/ SUM_COLUMNS/' \
        $backend test_gpu_ops_linear
    plant swapped-axes kernels/ops/move/flatten.cu 's/there.columns, there.rows/there.rows, there.columns/' \
        kernels/ops/move/flatten.cu test_gpu_ops
    counters=kernels/census/census.cuh
    plant double-atomics $counters 's/(&other\[which\], counter(1));/(\&other[which], counter(2));/' $census \
        test_gpu_device
    plant int-overflow $counters 's/typedef unsigned counter;/typedef unsigned char counter;/' $census \
        test_gpu_device
    shown=kernels/census/shown.cu
    plant wrong-sample $shown 's/ \* t.every + t.turn)/ * t.every)/' $shown test_gpu_shown
    plant wrong-block $shown 's/.first_block <= b)/.first_block < b)/' $shown test_gpu_shown
    plant waits-in-a-recording $shown 's/= cudaStreamCaptureModeRelaxed/= cudaStreamCaptureModeGlobal/' \
        $shown test_gpu_shown
    plant no-wait-for-results $shown '/cudaEventSynchronize(shown->done)/d' $shown test_gpu_shown
fi
if [ "$which" = libraries ]; then
    in_gemm() { plant "blas-$1" $gemm "$2" $gemm "$3"; }
    in_gemm transposition 's/first = g->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N/first = CUBLAS_OP_N/' \
        test_gpu_ops_matmul
    in_gemm layout 's/static_cast<uint64_t>(columns),/static_cast<uint64_t>(rows),/' test_gpu_ops_matmul
    in_gemm leading-dimension 's/(rows), step));/(rows), step - 1));/' test_gpu_ops_matmul
    in_gemm batch-step 's/&batch_step, sizeof batch_step/\&batch, sizeof batch/' test_gpu_ops_matmul
    in_gemm workspace 's/p->workspace_bytes, ab_cuda/p->workspace_bytes \/ 2, ab_cuda/' test_gpu_ops_matmul
    in_gemm alignment 's/alignment = ALIGNMENT/alignment = 4096/' test_gpu_ops_matmul
    in_gemm lifetime 's/^    if (p->shape.bias)$/    (void)cublasLtMatrixLayoutDestroy(p->c);\n&/' \
        test_gpu_ops_matmul
    in_gemm attribute-size 's/&second, sizeof second/\&second, 1/' test_gpu_ops_matmul
    in_gemm algorithm-of-another 's/memcmp(&known\[i\].shape, &p->shape, sizeof p->shape) != 0/false/' \
        test_gpu_ops_matmul
    in_gemm bias-type 's/type = data_type(g->type_c);/type = CUDA_R_32F;/' test_gpu_ops_linear
    dnn=kernels/ops/product/product_cudnn.cu
    in_dnn() { plant "dnn-$1" $dnn "$2" $dnn test_gpu_ops_conv2d; }
    in_dnn type 's/(p->out, CUDNN_TENSOR_NHWC, type,/(p->out, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT,/'
    in_dnn layout 's/(p->in, CUDNN_TENSOR_NHWC/(p->in, CUDNN_TENSOR_NCHW/'
    in_dnn groups 's/static_cast<int>(p->spec.conv.groups)));/1));/'
    in_dnn workspace 's/workspace_bytes = c->workspace;/workspace_bytes = c->workspace \/ 2;/'
    in_dnn alignment 's/ + runs \* t->bytes;/ + runs * t->bytes + 8;/'
    in_dnn lifetime '/AB_PASS_FORWARD) return run_forward/i\
        (void)cudnnDestroyConvolutionDescriptor(p->conv);'
fi
echo "$count planted, $failures not noticed"
[ $failures -eq 0 ]
