#include <fmt/format.h>

#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/record_table.h"
#include "harness/cli/shared_options.h"
#include "harness/schema/machine.h"
#include "harness/sweep/case_runner.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

void add_rate(Sheet& sheet, const std::string& group, const std::string& name, const Json& from, const std::string& key,
              const std::string& unit) {
  sheet.push_back({group, name, fmt::format("{:.1f} {}", from.at(key).get<double>(), unit)});
}

void add_ceilings(Sheet& sheet, const Json& ceilings) {
  const auto group = fmt::format("ceilings, measured on {} threads", ceilings.at("threads").get<int>());
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

}  // namespace

Run add_doctor_command(Command& command) {
  const auto format = std::make_shared<Format>(Format::text);
  add_format_option(command, *format);
  add_former_format_flag(command, *format, Format::json);
  command.add_example("doctor", "shows the machine, the build, and the highest measured bandwidth and arithmetic rate");
  return [format](const WorkerProgram& worker) {
    const auto environment = ask_environment(worker);
    const auto ceilings = ask_worker(worker, "ceilings", nullptr, 1)[0];
    const auto memory_bytes = available_memory_bytes();
    if (*format == Format::json) {
      Json all;
      for (const auto& column : columns())
        if (column.group == "environment") all[column.name] = environment.get(column.name);
      all["available_memory_bytes"] = memory_bytes;
      all["worker"] = worker.path;
      all["ceilings"] = ceilings;
      print_json(all);
      return exit_code::success;
    }
    auto sheet = sheet_of(environment);
    sheet.push_back({"environment", "available memory", format_bytes(double(memory_bytes))});
    sheet.push_back({"environment", "worker", worker.path});
    read_answer(worker, "ceilings", [&] {
      add_ceilings(sheet, ceilings);
      add_gpu(sheet, ceilings.at("gpu"));
    });
    print_sheet(sheet, *format);
    return exit_code::success;
  };
}

}  // namespace attnbench
