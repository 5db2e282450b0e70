#include <fmt/format.h>

#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/record_table.h"
#include "harness/process/worker_process.h"
#include "harness/schema/machine.h"
#include "harness/text/units.h"

namespace attnbench {

Run add_doctor_command(CLI::App& command) {
  const auto json = std::make_shared<bool>(false);
  command.add_flag("--json", *json, "as JSON");
  return [json](const WorkerProgram& worker) {
    const auto environment = Record::parse(ask_worker(worker, "environment", nullptr, 1)[0]);
    const auto ceilings = ask_worker(worker, "ceilings", nullptr, 1)[0];
    if (*json) {
      Json all;
      for (const auto& column : columns())
        if (column.group == "environment") all[column.name] = environment.get(column.name);
      all["available_memory_bytes"] = available_memory_bytes();
      all["worker"] = worker.path;
      all["ceilings"] = ceilings;
      fmt::print("{}\n", all.dump(2));
      return 0;
    }
    fmt::print("{}  {:<28} {}\n  {:<28} {}\n\nceilings, measured on {} threads\n", record_sheet(environment), "available memory",
               format_bytes(double(available_memory_bytes())), "worker", worker.path, ceilings.at("threads").get<int>());
    const auto line = [&](const char* name, const char* key, const char* unit) {
      fmt::print("  {:<28} {:.1f} {}\n", name, ceilings.at(key).get<double>(), unit);
    };
    line("streaming read", "read_gb_s", "GB/s");
    line("copy (read + written)", "copy_gb_s", "GB/s");
    line("multiply-add, float32", "fma_float32_gflop_s", "GFLOP/s");
    line("multiply-add, float64", "fma_float64_gflop_s", "GFLOP/s");
    fmt::print("  {:<28} {}\n  {:<28} {}\n", "multiply-add chains on", ceilings.at("fma_instruction_set").get<std::string>(),
               "streamed array", format_bytes(ceilings.at("array_bytes").get<double>()));
    const auto& gpu = ceilings.at("gpu");
    if (gpu.contains("unavailable")) {
      fmt::print("\nGPU\n  none: {}\n", gpu.at("unavailable").get<std::string>());
    } else {
      fmt::print("\nGPU\n  {:<28} {}\n  {:<28} {}\n  {:<28} {:.1f} GB/s\n  {:<28} {:.1f} GFLOP/s\n", "name",
                 gpu.at("name").get<std::string>(), "memory", format_bytes(gpu.at("memory_bytes").get<double>()),
                 "copy (read + written)", gpu.at("copy_gb_s").get<double>(), "multiply-add, float32",
                 gpu.at("fma_float32_gflop_s").get<double>());
      for (const auto* dtype : {"float64", "float32", "float16", "bfloat16"})
        fmt::print("  {:<28} {:.1f} GFLOP/s{}\n", fmt::format("matrix product, {}", dtype),
                   gpu.at(fmt::format("matmul_{}_gflop_s", dtype)).get<double>(),
                   dtype == std::string("float32") ? " (TF32)" : "");
    }
    return 0;
  };
}

}  // namespace attnbench
