/* The origin probe's record. */
#include "probes/origin/origin.h"

#include <math.h>

static const char *const causes[AB_CAUSE_COUNT] = {
    "cannot_tell",    "range_overflow", "accumulator_overflow", "scale_induced", "mathematics",
    "poisoned_input", "bad_weights",    "optimizer_arithmetic", "not_reproduced"};

static const char *const changes[AB_CHANGES] = {"appear", "propagate", "vanish"};

static const char *by_of(int stage) {
    static const char *const moves[AB_MOVE_COUNT] = {"cast", "weight_cast", "gradient_cast", "gradient_sum"};
    if (stage < AB_ORIGIN_MOVE) return "op";
    return stage == AB_ORIGIN_UPDATE ? "optimizer" : moves[(stage - AB_ORIGIN_MOVE) / 2];
}

static const char *pass_of(int stage) {
    if (stage == AB_ORIGIN_UPDATE) return "update";
    bool backward = stage < AB_ORIGIN_MOVE ? stage == AB_ORIGIN_BACKWARD : (stage - AB_ORIGIN_MOVE) % 2 == 1;
    return backward ? "backward" : "forward";
}

static void report_cause(const ab_origin_cause *cause, ab_probe_sink *sink) {
    sink->begin_object(sink, "cause");
    sink->text(sink, "id", causes[cause->id]);
    sink->integer(sink, "samples", cause->samples);
    sink->number(sink, "value", cause->value);
    sink->number(sink, "unscaled", cause->unscaled);
    sink->number(sink, "partial", cause->partial);
    sink->number(sink, "limit", cause->limit);
    sink->end(sink);
}

/* The step at which a linear fit of the earlier steps' log2 magnitudes reaches the limit; NAN if they do not
 * increase. */
static double crossing(const ab_origin_event *event) {
    double n = 0, steps = 0, octaves = 0, squares = 0, products = 0;
    for (int i = 0; i < event->pasts; i++) {
        if (!(event->past[i].largest > 0)) continue;
        double x = (double)(event->past[i].step - event->step), y = log2(event->past[i].largest);
        n++;
        steps += x;
        octaves += y;
        squares += x * x;
        products += x * y;
    }
    double spread = n * squares - steps * steps, slope = (n * products - steps * octaves) / spread;
    if (n < 2 || !(spread > 0) || !(slope > 0)) return (double)NAN;
    double at_event = (octaves - slope * steps) / n;
    return (double)event->step + (log2(event->cause.limit) - at_event) / slope;
}

static void report_history(const ab_origin_event *event, ab_probe_sink *sink) {
    sink->begin_array(sink, "history");
    for (int i = 0; i < event->pasts; i++) {
        const ab_origin_past *past = &event->past[i];
        sink->begin_object(sink, NULL);
        sink->integer(sink, "step", past->step);
        sink->number(sink, "largest", past->largest);
        sink->number(sink, "margin_octaves",
                     past->largest > 0 ? log2(event->cause.limit / past->largest) : (double)NAN);
        sink->end(sink);
    }
    sink->end(sink);
    sink->number(sink, "crossing_step", crossing(event));
}

static void report_flow(const ab_origin_event *event, ab_probe_sink *sink) {
    sink->begin_array(sink, "flow");
    for (int i = 0; i < event->flows; i++) {
        const ab_origin_flow *flow = &event->flow[i];
        sink->begin_object(sink, NULL);
        sink->text(sink, "op", flow->name);
        sink->text(sink, "pass", pass_of(flow->stage));
        sink->text(sink, "by", by_of(flow->stage));
        sink->text(sink, "change", changes[flow->change]);
        sink->integer(sink, "infinite", flow->infinite);
        sink->integer(sink, "nan", flow->nan);
        sink->end(sink);
    }
    sink->end(sink);
    sink->integer(sink, "appeared", event->changes[AB_APPEARS]);
    sink->integer(sink, "propagated", event->changes[AB_PROPAGATES]);
    sink->integer(sink, "vanished", event->changes[AB_VANISHES]);
}

static void report_event(const ab_origin_event *event, ab_probe_sink *sink) {
    sink->begin_object(sink, NULL);
    sink->integer(sink, "step", event->step);
    sink->integer(sink, "last_step", event->last_step);
    sink->integer(sink, "times", event->times);
    sink->number(sink, "loss_scale", event->scale);
    sink->boolean(sink, "ran_again", event->replayed);
    sink->boolean(sink, "expected", event->expected);
    sink->text(sink, "op", event->name);
    sink->text(sink, "type", event->type[0] ? event->type : NULL);
    sink->text(sink, "pass", pass_of(event->place.stage));
    sink->text(sink, "by", by_of(event->place.stage));
    sink->text(sink, "tensor", event->tensor[0] ? event->tensor : NULL);
    sink->text(sink, "format", event->format->name);
    sink->integer(sink, "count", event->count);
    sink->integer(sink, "infinite", event->found.infinite);
    sink->integer(sink, "nan", event->found.nan);
    sink->number(sink, "read_largest", event->read_largest);
    report_cause(&event->cause, sink);
    report_history(event, sink);
    report_flow(event, sink);
    sink->end(sink);
}

static void report_step(const ab_origin_step *step, ab_probe_sink *sink) {
    sink->begin_object(sink, NULL);
    sink->integer(sink, "step", step->step);
    sink->number(sink, "loss_scale", step->scale);
    sink->text(sink, "op", step->name);
    sink->text(sink, "pass", pass_of(step->stage));
    sink->text(sink, "by", by_of(step->stage));
    sink->text(sink, "tensor", step->tensor[0] ? step->tensor : NULL);
    sink->text(sink, "format", step->format->name);
    sink->number(sink, "margin_octaves", step->margin);
    sink->end(sink);
}

void ab_origin_report(const ab_origin *o, ab_probe_sink *sink) {
    sink->begin_object(sink, "origin");
    sink->integer(sink, "nonfinite_steps", o->nonfinite);
    sink->integer(sink, "steps_run_again", o->replays);
    sink->integer(sink, "events_left_out", o->left_out);
    sink->begin_array(sink, "events");
    for (int i = 0; i < o->events; i++) report_event(&o->event[i], sink);
    sink->end(sink);
    sink->begin_array(sink, "steps");
    for (int i = 0; i < o->notes; i++) report_step(&o->noted[i], sink);
    sink->end(sink);
    sink->end(sink);
}
