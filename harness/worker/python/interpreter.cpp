// Starts the interpreter of the build or of ATTNBENCH_PYTHON, and opens the bridge to it.
#include "harness/worker/python/interpreter.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "attn/refusal.h"
#include "harness/schema/json.h"
#include "harness/worker/methods/methods.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;
namespace py = pybind11;

// The interpreter whose packages are used: that in the environment variable ATTNBENCH_PYTHON, or the one whose torch this program
// was built with.
std::string interpreter_path() {
  const char* const chosen = std::getenv("ATTNBENCH_PYTHON");
  const std::string path = chosen && *chosen ? chosen : ATTNBENCH_DEFAULT_PYTHON;
  std::error_code error;
  TORCH_CHECK_VALUE(fs::exists(path, error), "Python methods need the interpreter ", path, ", which does not exist",
                    chosen ? " (from the environment variable ATTNBENCH_PYTHON)" : "; set ATTNBENCH_PYTHON to another one");
  return path;
}

void initialise(const std::string& interpreter) {
  // The extension modules of Python packages look for the functions of the interpreter among the global symbols.
  TORCH_CHECK_VALUE(dlopen(ATTNBENCH_PYTHON_LIBRARY, RTLD_NOW | RTLD_GLOBAL),
                    "the library of Python cannot be loaded: ", dlerror());
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.install_signal_handlers = 0;  // the driver ends the worker
  config.parse_argv = 0;
  config.safe_path = 1;  // what is imported must not depend on the current folder
  auto status = PyConfig_SetBytesString(&config, &config.program_name, interpreter.c_str());
  if (!PyStatus_Exception(status)) status = PyConfig_SetBytesString(&config, &config.executable, interpreter.c_str());
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  TORCH_CHECK_VALUE(!PyStatus_Exception(status), "the interpreter ", interpreter,
                    " cannot be started: ", status.err_msg ? status.err_msg : "unknown reason");
}

// In a source tree the package attnbench is in the folder python beside the build folder. An installed worker is inside the
// package, which the interpreter finds by itself.
void add_package_folder() {
  const auto folder = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "python";
  if (fs::exists(folder / "attnbench" / "_bridge.py")) py::module_::import("sys").attr("path").attr("insert")(0, folder.string());
}

// Tensors can be passed to Python only if both sides use the same LibTorch.
void check_torch(const std::string& interpreter) {
  const auto spec = py::module_::import("importlib.util").attr("find_spec")("torch");
  TORCH_CHECK_VALUE(!spec.is_none(), "Python methods need torch for Python ", PY_MAJOR_VERSION, ".", PY_MINOR_VERSION, ", which ",
                    interpreter, " does not have; pip install torch==", ATTNBENCH_TORCH_VERSION);
  const auto folder = fs::weakly_canonical(spec.attr("origin").cast<std::string>()).parent_path() / "lib";
  const auto loaded = fs::weakly_canonical(torch_library()).parent_path();
  const auto version = py::module_::import("importlib.metadata").attr("version")("torch").cast<std::string>();
  TORCH_CHECK_VALUE(folder == loaded, "the torch ", version, " of ", interpreter, " in ", folder.string(),
                    " is not the LibTorch that attnbench uses, which is ", ATTNBENCH_TORCH_VERSION, " in ", loaded.string(),
                    "; set ATTNBENCH_PYTHON to the interpreter that attnbench was installed into");
}

py::handle import_bridge(const std::string& interpreter) {
  try {
    add_package_folder();
    check_torch(interpreter);
    return py::module_::import("attnbench._bridge").release();  // lives as long as the process
  } catch (py::error_already_set& error) {
    TORCH_CHECK_VALUE(false, "Python methods cannot run with ", interpreter, ": ", error.what());
  }
}

}  // namespace

py::handle Bridge::start() {
  static const auto module = [] {
    const auto interpreter = interpreter_path();
    if (!Py_IsInitialized()) initialise(interpreter);
    auto imported = import_bridge(interpreter);
    PyEval_SaveThread();  // releases the GIL, which each call takes for itself: autograd must be called without it
    return imported;
  }();
  return module;
}

Bridge::Bridge() : module_(start()) {}

void Bridge::fail(py::error_already_set& error) const {
  std::string text;
  try {
    auto value = error.value();
    if (error.trace()) value.attr("__traceback__") = error.trace();
    text = module_.attr("traceback_text")(value).cast<std::string>();
  } catch (py::error_already_set&) {
    text = error.what();
  }
  if (error.matches(PyExc_MemoryError) || text.find("OutOfMemoryError") != std::string::npos)
    TORCH_CHECK_WITH(OutOfMemoryError, false, text);
  if (error.matches(module_.attr("MissingFunction"))) throw attn::Refusal(attn::Refusal::Kind::unknown, "method", text);
  TORCH_CHECK_VALUE(false, text);
}

}  // namespace attnbench
