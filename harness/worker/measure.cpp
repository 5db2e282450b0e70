// Runs what each request asks of a case, and records exceptions as failures.
#include "harness/worker/measure.h"

#include <c10/util/Exception.h>

#include <functional>
#include <new>
#include <string>

#include "attn/refusal.h"
#include "harness/worker/cpu/threads.h"
#include "harness/worker/protocols/protocol.h"
#include "harness/worker/subject.h"
#include "harness/worker/timing/injected_slowdown.h"

namespace attnbench {
namespace {

// Runs `work`. Records an exception that it throws as a failure.
void guarded(Record& record, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    record.set_failed(kind::oom, "the system ran out of memory");
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    const bool out_of_memory =
        what.find("can't allocate memory") != std::string::npos || dynamic_cast<const c10::OutOfMemoryError*>(&error);
    record.set_failed(out_of_memory ? kind::oom : kind::error, what);
  } catch (const std::exception& error) {
    record.set_failed(kind::error, error.what());
  }
}

// Whether the case has several ranks, which the driver has measured by another program. The case is then recorded as unsupported.
bool is_split(const Case& c, Record& record) {
  if (c.ranks == 1) return false;
  record.set_skipped(kind::unsupported, "several ranks are not verified or counted, and take no turns with other cases");
  return true;
}

}  // namespace

Record measure(const Case& c, const MeasureOptions& options, const WorkerContext& context) {
  Record record;
  if (is_split(c, record)) return record;
  guarded(record, [&] {
    use_threads(c.threads);
    auto subject = prepare(c, context, record);
    if (!subject) return;
    subject->checks_small = options.small_check;
    subject->takes_quality = options.quality;
    subject->compared_digest = options.compared_digest;
    auto& device = *subject->device;
    const BoundThreads bound(c.device == "cpu" ? c.threads : 0);
    record.set("threads_bound", bound.are_bound());
    SampleWatch watch(c.threads, options.best_arithmetic_us, c.max_disturbance, [&] { return device.is_throttled(); });
    Sampling sampling{.turns = options.turns, .watch = &watch};
    if (c.cache == "cold") sampling.before_sample = device.make_cache_flush();
    subject->protocol->measure(*subject, sampling, record);
    subject->device->set_columns(record);
  });
  return record;
}

// Never inlined, so that a profiler finds the function by its name and counts only these calls.
extern "C" __attribute__((noinline)) void attnbench_counted_calls(const std::function<void()>& call, int64_t count) {
  for (int64_t i = 0; i < count; ++i) call();
}

Record count(const Case& c, const WorkerContext& context) {
  Record record;
  if (is_split(c, record)) return record;
  guarded(record, [&] {
    use_threads(1);
    auto on_one_thread = c;
    on_one_thread.threads = 1;
    const auto subject = prepare(on_one_thread, context, record);
    if (!subject) return;
    if (auto* const other = foreign(subject->method.get())) set_up(*other, subject->problem, subject->protocol->id(), record);
    const auto calls = slowed_down_count(kCountedCalls, c.injected_slowdown_percent);
    const auto call = subject->protocol->repeated(*subject, 1 + calls);
    call();  // what a method initialises in its first call must not be counted
    record.set("implementation", subject->method->implementation());
    attnbench_counted_calls(call, calls);
    record.set("outcome", outcome::measured);
  });
  return record;
}

Record verify(const Case& c, const WorkerContext& context) {
  Record record;
  if (is_split(c, record)) return record;
  guarded(record, [&] {
    use_threads(c.threads);
    if (const auto subject = prepare(c, context, record)) subject->protocol->verify(*subject, record);
  });
  return record;
}

Record plan(const Case& c, const WorkerContext& context) {
  Record record;
  guarded(record, [&] {
    try {
      prepare(c, context, record);
    } catch (const attn::Refusal& error) {
      record.set_failed(error.kind == attn::Refusal::Kind::unknown ? kind::unknown_method : kind::usage,
                        error.what_without_backtrace());
      if (!error.field.empty()) record.set("failure_field", error.field);
    } catch (const c10::ValueError& error) {  // what a method refuses is about the method and its options
      record.set_failed(kind::usage, error.what_without_backtrace());
      record.set("failure_field", "method");
    }
  });
  return record;
}

}  // namespace attnbench
