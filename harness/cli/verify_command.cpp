#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/process/worker_process.h"
#include "harness/schema/record.h"
#include "harness/sweep/catalogue.h"
#include "harness/text/errors.h"
#include "harness/text/text_table.h"

namespace attnbench {
namespace {

// Sizes that no chunk, vector or warp divides, one position, cross attention, unequal dims.
std::vector<Case> cases_for(const std::string& method, const std::string& dtype, bool causal, const std::string& key_lengths) {
  struct Shape {
    int64_t batch, heads, query_len, key_len, head_dim, value_dim;
  };
  constexpr Shape shapes[] = {{2, 3, 300, 300, 64, 64}, {1, 2, 1, 1, 32, 32}, {2, 2, 129, 129, 24, 40}, {2, 2, 65, 190, 32, 16}};
  std::vector<const char*> protocols = {"forward", "forward_backward"};
  if (causal && key_lengths == "full") protocols.insert(protocols.end(), {"prefill", "decode"});
  std::vector<Case> cases;
  for (const auto& shape : shapes) {
    if (causal && shape.query_len != shape.key_len) continue;
    for (const auto* protocol : protocols) {
      Case c;
      c.method = method;
      c.dtype = dtype;
      c.causal = causal;
      c.key_lengths = key_lengths;
      c.protocol = protocol;
      c.batch = shape.batch;
      c.heads = shape.heads;
      c.query_len = shape.query_len;
      c.key_len = shape.key_len;
      c.head_dim = shape.head_dim;
      c.value_dim = shape.value_dim;
      c.complete();
      cases.push_back(c);
    }
  }
  return cases;
}

// The cases of one row of the table, and what came of them.
struct Row {
  std::string method, dtype;
  bool causal;
  std::string key_lengths;
  std::vector<Record> records = {};

  double worst(const char* protocol) const {
    double most = -1;
    for (const auto& record : records)
      if (record.text("protocol") == protocol && record.has("max_rel_error"))
        most = std::max(most, record.number("max_rel_error"));
    return most;
  }
  // "agrees", "unsupported" or what is wrong.
  std::string verdict() const {
    for (const auto& record : records)
      if (record.text("outcome") == outcome::failed)
        return fmt::format("{} at N={}, {}: {}", record.text("failure_kind"), record.get("query_len").dump(),
                           record.text("protocol"), record.text("reason"));
    for (const auto& record : records)
      if (record.measured()) return "agrees";
    return records.empty() ? "no answer" : "unsupported: " + records.front().text("reason");
  }
};

void run_rows(const WorkerProgram& worker, std::vector<Row>& rows, const std::string& method) {
  auto request = Json::array();
  std::vector<std::pair<Row*, Case>> asked;
  for (auto& row : rows) {
    if (row.method != method) continue;
    for (auto& c : cases_for(row.method, row.dtype, row.causal, row.key_lengths)) {
      request.push_back(to_json(c));
      asked.emplace_back(&row, c);
    }
  }
  const auto answer = run_worker(worker, "verify", request, 900);
  for (size_t i = 0; i < asked.size(); ++i) {
    Record record(asked[i].second);
    if (i < answer.lines.size()) {
      record.merge(Record::parse(answer.lines[i]));
    } else {
      record.set_failed(answer.end == WorkerAnswer::End::deadline ? kind::timeout : kind::crashed,
                        fmt::format("the worker gave no answer{}{}", answer.diagnostics.empty() ? "" : ": ", answer.diagnostics));
    }
    asked[i].first->records.push_back(std::move(record));
  }
}

std::string error_text(double error) { return error < 0 ? "–" : fmt::format("{:.1e}", error); }

}  // namespace

Run add_verify_command(CLI::App& command) {
  struct Options {
    std::vector<std::string> methods;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  command.add_option("methods", options->methods, "methods, by default all");
  command.add_flag("--json", options->json, "as JSON");
  return [options](const WorkerProgram& worker) {
    const auto catalogue = Catalogue::load(worker);
    auto methods = options->methods.empty() ? catalogue.names() : options->methods;
    for (const auto& method : methods) catalogue.check(method);
    std::vector<Row> rows;
    for (const auto& method : methods)
      for (const auto* dtype : {"float32", "float64", "bfloat16"})
        for (const bool causal : {false, true})
          for (const auto* key_lengths : {"full", "uniform", "0"}) rows.push_back({method, dtype, causal, key_lengths});
    for (const auto& method : methods) run_rows(worker, rows, method);

    TextTable table;
    for (const auto* header : {"method", "dtype", "causal", "key lengths"}) table.add_column(header);
    for (const auto* header : {"value error", "gradient error", "decoding error", "accepted"})
      table.add_column(header, TextTable::Align::right);
    table.add_column("verdict");
    auto json = Json::array();
    bool all_agree = true;
    for (const auto& row : rows) {
      const auto verdict = row.verdict();
      const double tolerance = row.records.empty()                          ? -1
                               : row.records.front().has("error_tolerance") ? row.records.front().number("error_tolerance")
                                                                            : -1;
      all_agree = all_agree && (verdict == "agrees" || verdict.starts_with("unsupported"));
      const auto value = row.worst("forward"), gradient = row.worst("forward_backward"),
                 decoding = std::max(row.worst("prefill"), row.worst("decode"));
      table.add_row({row.method, row.dtype, row.causal ? "yes" : "no", row.key_lengths, error_text(value), error_text(gradient),
                     error_text(decoding), error_text(tolerance), verdict});
      const auto or_null = [](double error) { return error < 0 ? Json() : Json(error); };
      json.push_back({{"method", row.method},
                      {"dtype", row.dtype},
                      {"causal", row.causal},
                      {"key_lengths", row.key_lengths},
                      {"value_error", or_null(value)},
                      {"gradient_error", or_null(gradient)},
                      {"decoding_error", or_null(decoding)},
                      {"error_tolerance", or_null(tolerance)},
                      {"verdict", verdict}});
    }
    if (options->json) fmt::print("{}\n", json.dump(2));
    else fmt::print("{}", table.render());
    return all_agree ? 0 : 1;
  };
}

}  // namespace attnbench
