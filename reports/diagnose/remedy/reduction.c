/* How gradients are to be reduced. The names are those of apex DistributedDataParallel, torch's
 * DistributedDataParallel and its communication hooks, DeepSpeed's configuration, FSDP's MixedPrecision and
 * Megatron-LM's arguments. */
#include "reports/diagnose/remedy/remedy.h"

#include "reports/record/json.h"

static const struct {
    const char *option, *value, *names;
} rows[] = {
    [AB_REDUCTION_BEFORE] = {"--divide", "pre",
                             "divide before the sum: apex gradient_predivide_factor=N, DeepSpeed "
                             "prescale_gradients true; torch DDP does"},
    [AB_REDUCTION_AROUND] =
        {"--divide", "sqrt",
         "divide before and after the sum: apex and DeepSpeed gradient_predivide_factor=sqrt(N); "
         "FSDP does"},
    [AB_REDUCTION_WIDE] =
        {"--reduce-dtype", "fp32",
         "reduce in fp32: apex allreduce_always_fp32=True, DeepSpeed communication_data_type fp32, "
         "FSDP reduce_dtype=torch.float32, torch DDP without a compress hook"},
};

/* Options of the reduction are not given beside --ddp. */
void ab_remedy_reduction(const ab_facts *facts, ab_reduction_remedy kind, ab_remedy *remedy) {
    const cJSON *preset = ab_json_at(facts->document, "run.options.ddp");
    if (preset)
        ab_remedy_add_text(remedy, "%s", rows[kind].names);
    else
        ab_remedy_option(remedy, rows[kind].names, rows[kind].option, "%s", rows[kind].value);
}
