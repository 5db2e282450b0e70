// `attnbench doctor`: shows the machine, the build and its ceilings or, with --noise, how noisy the machine is.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <memory>
#include <stdexcept>

#include "harness/analysis/noise.h"
#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/rendering/record_table.h"
#include "harness/cli/shared_options.h"
#include "harness/machine/machine.h"
#include "harness/sweep/case_plans.h"
#include "harness/sweep/catalogue.h"
#include "harness/text/errors.h"
#include "harness/text/json_numbers.h"
#include "harness/text/notice.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

void add_rate(Sheet& sheet, const std::string& group, const std::string& name, const Json& from, const std::string& key,
              const std::string& unit) {
  sheet.push_back({group, name, fmt::format("{:.1f} {}", from.at(key).get<double>(), unit)});
}

void add_ceilings(Sheet& sheet, const Json& ceilings) {
  const auto group = fmt::format("ceilings, measured on {}", count_of(ceilings.at("threads").get<int>(), "thread"));
  add_rate(sheet, group, "streaming read", ceilings, "read_gb_s", "GB/s");
  add_rate(sheet, group, "copy (read + written)", ceilings, "copy_gb_s", "GB/s");
  add_rate(sheet, group, "multiply-add, float32", ceilings, "fma_float32_gflop_s", "GFLOP/s");
  add_rate(sheet, group, "multiply-add, float64", ceilings, "fma_float64_gflop_s", "GFLOP/s");
  sheet.push_back({group, "multiply-add instruction set", ceilings.at("fma_instruction_set").get<std::string>()});
  sheet.push_back({group, "size of the streamed array", format_bytes(ceilings.at("array_bytes").get<double>())});
}

void add_gpu(Sheet& sheet, const Json& gpu) {
  if (gpu.contains("unavailable")) return sheet.push_back({"GPU", "unavailable", gpu.at("unavailable").get<std::string>()});
  sheet.push_back({"GPU", "name", gpu.at("name").get<std::string>()});
  sheet.push_back({"GPU", "memory", format_bytes(gpu.at("memory_bytes").get<double>())});
  add_rate(sheet, "GPU", "copy (read + written)", gpu, "copy_gb_s", "GB/s");
  add_rate(sheet, "GPU", "multiply-add, float32", gpu, "fma_float32_gflop_s", "GFLOP/s");
  for (const std::string dtype : {"float64", "float32", "float16", "bfloat16"})
    add_rate(sheet, "GPU", fmt::format("matrix product, {}", dtype), gpu, fmt::format("matmul_{}_gflop_s", dtype),
             dtype == "float32" ? "GFLOP/s (TF32)" : "GFLOP/s");
}

struct DoctorOptions {
  Format format = Format::text;
  bool noise = false;
  double noise_s = 60;
};

Json json_of(const NoiseReport& report) {
  return {{"samples", report.samples},
          {"median_ms", report.median_ms},
          {"disturbed_share", report.disturbed_share},
          {"longest_disturbance_s", report.longest_s},
          {"samples_spread", finite_or_null(report.samples_spread)},
          {"windows_spread", finite_or_null(report.windows_spread)},
          {"undisturbed_windows_spread", finite_or_null(report.kept_spread)},
          {"ratios_spread", finite_or_null(report.ratios_spread)},
          {"run_delay_share", finite_or_null(report.run_delay_share)},
          {"steal_share", finite_or_null(report.steal_share)},
          {"system_share", finite_or_null(report.system_share)},
          {"load", finite_or_null(report.load)},
          {"advice", report.advice}};
}

Sheet sheet_of(const NoiseReport& report, double seconds) {
  const auto percent = [](double share) { return std::isnan(share) ? std::string("–") : fmt::format("{:.1f} %", 100 * share); };
  const auto around = [&](double share) { return std::isnan(share) ? std::string("–") : "±" + percent(share); };
  const auto group = fmt::format("noise, over {:g} s of work that is always the same", seconds);
  Sheet sheet = {{group, "single samples differ by", around(report.samples_spread)},
                 {group, "medians of a second differ by", around(report.windows_spread)},
                 {group, "the same, undisturbed only", around(report.kept_spread)},
                 {group, "ratios in turns differ by", around(report.ratios_spread)},
                 {group, "disturbed samples", percent(report.disturbed_share)},
                 {group, "longest disturbance", fmt::format("{:.2f} s", report.longest_s)},
                 {group, "waiting for processors", percent(report.run_delay_share)},
                 {group, "taken by the hypervisor", percent(report.steal_share)},
                 {group, "load before", fmt::format("{:.1f}", report.load)}};
  for (const auto& sentence : report.advice) sheet.push_back({"what helps", "•", sentence});
  return sheet;
}

int report_noise(const WorkerProgram& worker, const DoctorOptions& options) {
  print_notice(fmt::format("measuring the noise of this machine for {:g} s\n", options.noise_s));
  const auto answer =
      run_worker(worker, "noise", nullptr, 2 * options.noise_s + 60, {}, {fmt::format("--seconds={}", options.noise_s)});
  if (const auto fault = fault_of(answer, 1); !fault.empty())
    throw WorkerError(fmt::format("`{} noise` broke: {}", worker.path, fault));
  const auto report = read_answer(worker, "noise", [&] {
    const auto record = Record::parse(answer.lines[0]);
    if (record.get("time_samples_ms").size() < 10) throw std::invalid_argument("it has fewer than ten samples");
    return noise_of(record);
  });
  if (options.format == Format::json) print_json(json_of(report));
  else print_sheet(sheet_of(report, options.noise_s), options.format);
  return exit_code::success;
}

int report_machine(const WorkerProgram& worker, Format format) {
  const auto environment = ask_environment(worker);
  const auto ceilings = ask_worker(worker, "ceilings", nullptr, 1)[0];
  const auto memory = memory_for_this_process(), processors = processors_for_this_process();
  if (format == Format::json) {
    Json all;
    for (const auto& column : columns())
      if (column.group == "environment") all[column.name] = environment.get(column.name);
    all["available_memory_bytes"] = memory.count;
    all["memory_limit_file"] = memory.file;
    all["processors_limit_file"] = processors.file;
    all["worker"] = worker.path;
    all["ceilings"] = ceilings;
    print_json(all);
    return exit_code::success;
  }
  auto sheet = sheet_of(environment);
  const auto catalogue = Catalogue::load(worker);
  for (const auto& method : catalogue.methods())
    if (const auto kernels = method.find("built_kernels"); kernels != method.end() && !kernels->empty()) {
      sheet.push_back({"environment", "CPU kernels of this build",
                       fmt::format("{}", fmt::join(kernels->get<std::vector<std::string>>(), ", "))});
      break;
    }
  sheet.push_back({"environment", "available memory", format_bytes(double(memory.count))});
  for (const auto& [name, limit] : {std::pair("limit of the memory", memory), std::pair("limit of the processors", processors)})
    if (!limit.file.empty()) sheet.push_back({"environment", name, limit.file});
  sheet.push_back({"environment", "worker", worker.path});
  read_answer(worker, "ceilings", [&] {
    add_ceilings(sheet, ceilings);
    add_gpu(sheet, ceilings.at("gpu"));
  });
  print_sheet(sheet, format);
  return exit_code::success;
}

}  // namespace

Run add_doctor_command(Command& command) {
  const auto options = std::make_shared<DoctorOptions>();
  add_format_option(command, options->format);
  command.add("--noise", &options->noise, "measure how noisy the machine is instead, and say what helps");
  command.add("--seconds", &options->noise_s, "how long the noise is measured",
              {.unit = "s", .min = 0.1, .max = 3600, .needs = "--noise"});
  command.add_example("doctor", "shows the machine, the build, and the highest measured bandwidth and arithmetic rate");
  command.add_example("doctor --noise", "shows within a minute how far times on this machine differ, and what helps");
  return [options](const WorkerProgram& worker) {
    if (options->noise) return report_noise(worker, *options);
    return report_machine(worker, options->format);
  };
}

}  // namespace attnbench
