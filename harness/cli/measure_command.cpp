#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/record_table.h"
#include "harness/process/worker_process.h"
#include "harness/sweep/case_runner.h"
#include "harness/sweep/catalogue.h"
#include "harness/text/errors.h"
#include "harness/text/units.h"

namespace attnbench {

Run add_measure_command(CLI::App& command) {
  struct Options {
    Case c;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  for (const auto& field : fields()) {
    auto name = "--" + std::string(field.name);
    std::replace(name.begin(), name.end(), '_', '-');
    const std::string description(field.description);
    if (field.name == "method") {
      command.add_option("method", options->c.method, description)->required();
    } else if (const auto* flag = std::get_if<bool Case::*>(&field.member)) {
      command.add_flag(name, options->c.*(*flag), description);
    } else {
      const auto convert = [options, &field](const std::string& text) {
        try {
          set_text(options->c, field, field.unit == "B" ? std::to_string(parse_bytes(text)) : text);
        } catch (const std::invalid_argument& error) {
          throw CLI::ValidationError("--" + std::string(field.name) + ": " + error.what());
        }
      };
      command.add_option_function<std::string>(name, convert, description);
    }
  }
  command.add_flag("--json", options->json, "the record as JSON");
  return [options](const WorkerProgram& worker) {
    Catalogue::load(worker).check(options->c.method);
    options->c.complete();
    auto planned = plan_cases(worker, {options->c})[0];
    if (!planned.has("outcome") && predicted_need_bytes(planned) > planned.number("memory_limit_bytes"))
      predict(planned, TimePredictor(Ceilings::nominal(options->c.threads)));
    const auto environment = Record::parse(ask_worker(worker, "environment", nullptr, 1)[0]);
    const auto record = run_case(worker, options->c, planned, environment, std::nullopt);
    if (options->json) fmt::print("{}\n", record.to_json().dump(-1, ' ', false, Json::error_handler_t::replace));
    else fmt::print("{}", record_sheet(record));
    return record.text("outcome") == outcome::failed ? 1 : 0;
  };
}

}  // namespace attnbench
