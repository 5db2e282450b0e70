#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"

namespace attnbench {
namespace {

// ---------------------------------------------------------------- bash

// Shell code that completes $word with the choices of the option, or with what its `completion` stands for.
std::string bash_reply(const Option& option) {
  if (!option.traits.choices.empty())
    return fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$word\"))", fmt::join(option.traits.choices, " "));
  switch (option.traits.completion) {
    case Completion::methods: return "COMPREPLY=($(compgen -W \"$(_attnbench_names methods)\" -- \"$word\"))";
    case Completion::sweeps:
      return "COMPREPLY=($(compgen -W \"$(_attnbench_names sweeps)\" -d -- \"$word\") $(compgen -f -X '!*.toml' -- \"$word\"))"
             "; _attnbench_as_files";
    case Completion::files: return "COMPREPLY=($(compgen -f -- \"$word\")); _attnbench_as_files";
    case Completion::nothing: break;
  }
  return "COMPREPLY=()";
}

// Branches of `case "$command $before"` for the values of the command's options.
std::string bash_value_branches(const Command& command, const std::string& name) {
  std::string text;
  for (const auto& option : command.options())
    if (!option.is_positional() && !option.is_flag() && !option.traits.hidden)
      text += fmt::format("    {}\\ {}) {}; return ;;\n", name, option.name, bash_reply(option));
  return text;
}

// Shell code that completes a positional argument. All positional arguments of a command are completed alike.
std::string bash_argument(const Command& command) {
  for (const auto& option : command.options())
    if (option.is_positional()) return bash_reply(option);
  return "COMPREPLY=()";
}

std::string bash_script(const CommandLine& line) {
  std::vector<std::string> commands, global = {"--help"};
  line.program().append_shown_names(global);
  std::string values = bash_value_branches(line.program(), "*"), options, arguments;
  for (const auto& command : line.commands()) {
    commands.push_back(command->name());
    auto names = global;
    command->append_shown_names(names);
    values += bash_value_branches(*command, command->name());
    options += fmt::format("      {}) options='{}' ;;\n", command->name(), fmt::join(names, " "));
    arguments += fmt::format("    {}) {} ;;\n", command->name(), bash_argument(*command));
  }
  return fmt::format(R"script(# Completion of {0} for bash. To load it: source <({0} completion bash)
_attnbench_names() {{ "$program" list "$1" --format csv 2>/dev/null | tail -n +2 | cut -d, -f1; }}
_attnbench_as_files() {{ compopt -o filenames 2>/dev/null; }}
_attnbench() {{
  local program=${{COMP_WORDS[0]}} word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= options at
  # bash divides "--option=value" into three words.
  if [[ $word == = ]]; then word=
  elif [[ $before == = ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  for ((at = 1; at < COMP_CWORD; ++at)); do
    case ${{COMP_WORDS[at]}} in
      {1}) command=${{COMP_WORDS[at]}}; break ;;
    esac
  done
  case "$command $before" in
{2}  esac
  if [[ $word == -* ]]; then
    case $command in
      '') options='{3}' ;;
{4}    esac
    COMPREPLY=($(compgen -W "$options" -- "$word"))
    return
  fi
  case $command in
    '') COMPREPLY=($(compgen -W '{5}' -- "$word")) ;;
{6}  esac
}}
complete -F _attnbench {0}
)script",
                     line.program().name(), fmt::join(commands, "|"), values, fmt::join(global, " "), options,
                     fmt::join(commands, " "), arguments);
}

// ---------------------------------------------------------------- zsh

// Escapes text for a single-quoted specification of zsh's _arguments, in which colons separate the parts.
std::string zsh_text(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'') quoted += "'\\''";
    else if (c == ':' || c == '[' || c == ']' || c == '\\') quoted += std::string("\\") + c;
    else quoted += c;
  }
  return quoted;
}

std::string zsh_action(const Option& option) {
  if (!option.traits.choices.empty()) return fmt::format("({})", fmt::join(option.traits.choices, " "));
  switch (option.traits.completion) {
    case Completion::methods: return "_attnbench_names methods";
    case Completion::sweeps: return "_attnbench_sweeps";
    case Completion::files: return "_files";
    case Completion::nothing: break;
  }
  return " ";
}

std::string zsh_specifications(const Command& command) {
  std::string text;
  for (const auto& option : command.options()) {
    if (option.traits.hidden) continue;
    const auto description = zsh_text(option.description), action = zsh_action(option);
    if (option.is_positional()) text += fmt::format(" \\\n        '{}:{}:{}'", option.is_list() ? "*" : "", option.name, action);
    else if (option.is_flag()) text += fmt::format(" \\\n        '{}[{}]'", option.name, description);
    else
      text += fmt::format(" \\\n        '{}{}=[{}]:{}:{}'", option.is_list() ? "*" : "", option.name, description,
                          option.name.substr(2), action);
  }
  return text;
}

std::string zsh_script(const CommandLine& line) {
  std::string commands, branches;
  const auto global = zsh_specifications(line.program()) + " \\\n        '--help[print this help and exit]'";
  for (const auto& command : line.commands()) {
    commands += fmt::format("    '{}:{}'\n", command->name(), zsh_text(command->description()));
    branches += fmt::format("    {})\n      _arguments{}{}\n      ;;\n", command->name(), zsh_specifications(*command), global);
  }
  return fmt::format(R"script(#compdef {0}
# Completion of {0} for zsh. To load it: source <({0} completion zsh)
_attnbench_names() {{
  local -a names
  names=(${{(f)"$($attnbench_program list $1 --format csv 2>/dev/null | tail -n +2 | cut -d, -f1)"}})
  compadd -a names
}}
_attnbench_sweeps() {{
  _attnbench_names sweeps
  _files
}}
_attnbench() {{
  local attnbench_program=$words[1] curcontext=$curcontext state line
  local -a commands
  commands=(
{1}  )
  _arguments -C{2} \
        '1: :->command' '*:: :->arguments'
  case $state in
    command)
      _describe command commands
      return
      ;;
  esac
  case $words[1] in
{3}  esac
}}
if [[ $funcstack[1] == _attnbench ]]; then _attnbench "$@"; else compdef _attnbench {0}; fi
)script",
                     line.program().name(), commands, global, branches);
}

}  // namespace

Run add_completion_command(Command& command, const CommandLine& line) {
  const auto shell = std::make_shared<std::string>();
  command.add("shell", shell.get(), "shell that the script is for", {.choices = {"bash", "zsh"}, .required = true});
  command.add_example("completion bash > ~/.local/share/bash-completion/completions/attnbench",
                      "installs the completion for bash");
  command.add_example("completion zsh > ~/.zfunc/_attnbench", "installs the completion for zsh, if ~/.zfunc is in fpath");
  return [shell, &line](const WorkerProgram&) {
    fmt::print("{}", *shell == "bash" ? bash_script(line) : zsh_script(line));
    return exit_code::success;
  };
}

}  // namespace attnbench
