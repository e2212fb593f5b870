# Builds the compiler (build/planc) and the runtimes that its trainers link: one for this machine's
# processors and MPI, one for NVIDIA's GPUs and MPI, one that only prints. Everything made lies in
# build/, or build-sanitize/ with SANITIZE=1, so the two never mix and `make clean` has little to
# do. Sources are found by name: a new file in compiler/ or runtime/ needs no line here.
#
#   make                  the compiler and the runtimes
#   make demo             train on real text, at most two minutes
#   make test             all tests (UPDATE=1 rewrites the wanted outputs)
#   make test-long        what does not fit in them
#   make bench            kernel and step speed of this machine
#   make bench-published  published runs of other trainers against predictions of them
#   make fuzz             damage plans, draw architectures
#   make install          into PREFIX (/usr/local), under DESTDIR
#   SANITIZE=1            any of them, under ASan and UBSan

ifdef SANITIZE
BUILD := build-sanitize
SANITIZE_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g
else
BUILD := build
SANITIZE_FLAGS :=
endif

# `make V=1` shows whole commands.
ifndef V
Q := @
say = @echo '$(1)  $(2)'
endif

CC       ?= cc
MPICC    ?= mpicc
BISON    ?= bison
FLEX     ?= flex
CFLAGS   ?= -O2 -g
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Werror=switch
STANDARD := -std=c17 -ffp-contract=off

# What a trainer is compiled and linked with on top of planc's own flags; baked in, so that a
# sanitised planc makes sanitised trainers.
COMPILER_FLAGS = $(STANDARD) $(CFLAGS) $(SANITIZE_FLAGS) -Icompiler -I. -I$(BUILD)/gen \
                 -DPLANC_TRAINER_FLAGS='"$(SANITIZE_FLAGS)"'
RUNTIME_FLAGS  = $(STANDARD) $(CFLAGS) -ftree-vectorize -fvect-cost-model=dynamic $(SANITIZE_FLAGS) -pthread -Iruntime -I.

GENERATED := $(BUILD)/gen/plan.tab.c $(BUILD)/gen/plan.lex.c
# What both sides know of files.
FORMATS   := $(patsubst %.c,$(BUILD)/%.o,$(wildcard formats/*.c))
COMPILER  := $(FORMATS) $(patsubst compiler/%.c,$(BUILD)/compiler/%.o,$(wildcard compiler/*/*.c)) \
             $(patsubst %.c,%.o,$(if $(wildcard grammar/plan.y),$(GENERATED)))

# A trainer is runtime/shared and the folder of its device. The trace device executes nothing and
# needs three files of shared. Nothing here needs CUDA to build: a trainer loads NVIDIA's libraries
# when it starts.
OBJECTS = $(patsubst runtime/%.c,$(BUILD)/runtime/%.o,$(1))
SHARED := $(FORMATS) $(call OBJECTS,$(wildcard runtime/shared/*.c))
CPU    := $(SHARED) $(call OBJECTS,$(wildcard runtime/cpu/*.c))
CUDA   := $(SHARED) $(call OBJECTS,$(wildcard runtime/cuda/*.c))
TRACE  := $(call OBJECTS,$(wildcard runtime/trace/*.c) \
          runtime/shared/options.c runtime/shared/fail.c runtime/shared/position.c)

all: $(BUILD)/planc $(BUILD)/lib/libtrainer_cpu.a $(BUILD)/lib/libtrainer_cuda.a $(BUILD)/lib/libtrainer_trace.a

$(BUILD)/planc: $(COMPILER)
	@mkdir -p $(@D)
	$(call say,link,$@)
	$(Q)$(CC) $(SANITIZE_FLAGS) -o $@.new $^ -ljansson -lm -ldl && mv $@.new $@

$(BUILD)/lib/libtrainer_cpu.a: $(CPU)
$(BUILD)/lib/libtrainer_cuda.a: $(CUDA)
$(BUILD)/lib/libtrainer_trace.a: $(TRACE)
$(BUILD)/lib/%.a:
	@mkdir -p $(@D)
	$(call say,ar  ,$@)
	$(Q)rm -f $@.new && ar rcs $@.new $^ && mv $@.new $@

# One command makes both the parser and its header; only the parser and the scanner are excused from
# our warnings.
$(BUILD)/gen/plan.tab.c $(BUILD)/gen/plan.tab.h &: grammar/plan.y
	@mkdir -p $(@D)
	$(call say,gen ,$<)
	$(Q)$(BISON) -Wall -Wcounterexamples -Werror --defines=$(BUILD)/gen/plan.tab.h -o $(BUILD)/gen/plan.tab.c $<
$(BUILD)/gen/plan.lex.c $(BUILD)/gen/plan.lex.h &: grammar/plan.l
	@mkdir -p $(@D)
	$(call say,gen ,$<)
	$(Q)$(FLEX) -o $(BUILD)/gen/plan.lex.c --header-file=$(BUILD)/gen/plan.lex.h $<
$(BUILD)/gen/%.o: $(BUILD)/gen/%.c $(BUILD)/gen/plan.tab.h $(BUILD)/gen/plan.lex.h $(BUILD)/flags
	$(call say,cc  ,$<)
	$(Q)$(CC) $(COMPILER_FLAGS) -Wall -Wextra -Werror=switch -Wno-unused-function -Wno-sign-compare -MMD -MP -c -o $@ $<

ifneq ($(wildcard grammar/plan.y),)
HEADERS := $(BUILD)/gen/plan.tab.h $(BUILD)/gen/plan.lex.h
endif
$(BUILD)/compiler/%.o: compiler/%.c $(BUILD)/flags | $(HEADERS)
	@mkdir -p $(@D)
	$(call say,cc  ,$<)
	$(Q)$(CC) $(COMPILER_FLAGS) $(WARNINGS) -MMD -MP -c -o $@ $<
$(BUILD)/formats/%.o: formats/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,cc  ,$<)
	$(Q)$(CC) $(STANDARD) $(CFLAGS) $(SANITIZE_FLAGS) -fPIC -I. $(WARNINGS) -MMD -MP -c -o $@ $<
$(BUILD)/runtime/%.o: runtime/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,mpicc,$<)
	$(Q)$(MPICC) $(RUNTIME_FLAGS) $(WARNINGS) -MMD -MP -c -o $@ $<
$(BUILD)/runtime/trace/%.o: runtime/trace/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,cc  ,$<)
	$(Q)$(CC) $(RUNTIME_FLAGS) $(WARNINGS) -MMD -MP -c -o $@ $<

# Rewritten only when the flags differ from the last time, so that changing them rebuilds everything
# and nothing else does.
$(BUILD)/flags: always
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(CC) $(MPICC) $(COMPILER_FLAGS) $(RUNTIME_FLAGS) $(WARNINGS))' | cmp -s - $@ || \
	 printf '%s\n' '$(subst ','\'',$(CC) $(MPICC) $(COMPILER_FLAGS) $(RUNTIME_FLAGS) $(WARNINGS))' > $@

-include $(wildcard $(BUILD)/compiler/*/*.d $(BUILD)/gen/*.d $(BUILD)/formats/*.d $(BUILD)/runtime/*/*.d)

# ── what people run ──────────────────────────────────────────────────────────
# Installing comes first and in its own make, because the rules above need the tools that it brings.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j2)
setup:
	@bash tests/setup.sh
demo: setup
	@$(MAKE) --no-print-directory $(JOBS) all
	@BUILD=$(BUILD) bash tests/demo.sh
test: setup
	@$(MAKE) --no-print-directory $(JOBS) all
	@BUILD=$(BUILD) UPDATE='$(UPDATE)' SUITES='$(SUITES)' bash tests/run.sh
test-long: setup
	@$(MAKE) --no-print-directory $(JOBS) all
	@BUILD=$(BUILD) LONG=1 SUITES='$(SUITES)' bash tests/run.sh
# What `make test` compares with where it is there, and skips elsewhere: PyTorch, transformers and
# TensorBoard, 6 GB from PyPI.
deps-peers:
	python3 -m venv $(BUILD)/peers
	$(BUILD)/peers/bin/pip install --quiet torch transformers tensorboard
# NVIDIA's wheels of cuBLAS and cuDNN, 1.5 GB from PyPI: headers and libraries that are newer than
# the toolkit's, for the suite cuda_library. No GPU is needed.
deps-nvidia:
	python3 -m venv $(BUILD)/nvidia
	$(BUILD)/nvidia/bin/pip install --quiet --no-deps 'nvidia-cublas>=13.2' 'nvidia-cudnn-cu13>=9.25'
bench: setup
	@$(MAKE) --no-print-directory $(JOBS) all
	@BUILD=$(BUILD) bash tests/bench.sh
# Predictions against runs: calibrates this processor, builds, runs and compares. It takes half an
# hour, wants a quiet machine and may be stopped: the next call goes on. tests/bench/predict.sh has
# its parts. A bound that published runs miss is printed and is no failure here.
bench-predict: setup
	@$(MAKE) --no-print-directory $(JOBS) all
	@BUILD=$(BUILD) bash tests/bench/predict.sh
	-@BUILD=$(BUILD) bash tests/bench/published.sh
bench-published: setup
	@$(MAKE) --no-print-directory $(JOBS) all
	@BUILD=$(BUILD) bash tests/bench/published.sh
# The front end under libFuzzer: the compiler's sources once more, by clang, with coverage and both
# sanitizers. Needs clang and libclang-rt; SECONDS_OF_FUZZ says how long.
FUZZED := $(patsubst compiler/%.c,build/fuzz/%.o,$(filter-out compiler/commands/%,$(wildcard compiler/*/*.c))) \
          build/fuzz/plan.tab.o build/fuzz/plan.lex.o build/fuzz/front.o
FUZZ_FLAGS := -std=c17 -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer \
              -Icompiler -Ibuild/gen -w -MMD -MP
SECONDS_OF_FUZZ ?= 60
build/planc-fuzz: $(FUZZED)
	$(call say,link,$@)
	$(Q)clang -fsanitize=fuzzer,address,undefined -o $@ $^ -ljansson -lm
build/fuzz/%.o: compiler/%.c | build/gen/plan.tab.h build/gen/plan.lex.h
	@mkdir -p $(@D)
	$(call say,fuzz,$<)
	$(Q)clang $(FUZZ_FLAGS) -c -o $@ $<
build/fuzz/%.o: build/gen/%.c
	@mkdir -p $(@D)
	$(Q)clang $(FUZZ_FLAGS) -c -o $@ $<
build/fuzz/%.o: tests/fuzz/%.c
	@mkdir -p $(@D)
	$(Q)clang $(FUZZ_FLAGS) -c -o $@ $<
-include $(wildcard build/fuzz/*.d build/fuzz/*/*.d)
fuzz:
	@$(MAKE) --no-print-directory $(JOBS) all build/planc-fuzz
	@bash tests/fuzz/front.sh $(SECONDS_OF_FUZZ) build/fuzz/run
	@bash tests/architectures/fuzz.sh $(SECONDS_OF_FUZZ) build/fuzz/architectures

# The compiler finds its library in PREFIX/share/planc and what trainers are made of in
# PREFIX/lib/planc, both from where it lies itself, so an installed tree may be moved whole.
PREFIX ?= /usr/local
INTO    = $(DESTDIR)$(PREFIX)
install: all
	$(call say,into,$(INTO))
	$(Q)set -e; install -d "$(INTO)/bin" "$(INTO)/lib/planc/runtime/shared" "$(INTO)/share/man/man1"
	$(Q)install -m 755 $(BUILD)/planc "$(INTO)/bin/planc"
	$(Q)install -m 644 $(BUILD)/lib/libtrainer_*.a "$(INTO)/lib/planc/"
	$(Q)install -m 644 runtime/shared/*.h "$(INTO)/lib/planc/runtime/shared/"
	$(Q)set -e; for file in $$(find templates plans -type f); do \
	    case $$file in plans/*) to="$(INTO)/share/planc/$$file";; *) to="$(INTO)/lib/planc/$$file";; esac; \
	    install -d "$$(dirname "$$to")"; install -m 644 "$$file" "$$to"; done
	$(Q)$(BUILD)/planc help man > $(BUILD)/planc.1 && install -m 644 $(BUILD)/planc.1 "$(INTO)/share/man/man1/planc.1"
	$(Q)$(BUILD)/planc help bash > $(BUILD)/planc.bash && install -D -m 644 $(BUILD)/planc.bash "$(INTO)/share/bash-completion/completions/planc"
	$(Q)$(BUILD)/planc help zsh > $(BUILD)/planc.zsh && install -D -m 644 $(BUILD)/planc.zsh "$(INTO)/share/zsh/site-functions/_planc"
	$(Q)set -e; for file in syntax ftdetect; do install -D -m 644 docs/editor/vim/$$file/plan.vim "$(INTO)/share/vim/vimfiles/$$file/plan.vim"; done
uninstall:
	rm -rf "$(INTO)/bin/planc" "$(INTO)/lib/planc" "$(INTO)/share/planc" "$(INTO)/share/man/man1/planc.1" \
	    "$(INTO)/share/bash-completion/completions/planc" "$(INTO)/share/zsh/site-functions/_planc" \
	    "$(INTO)/share/vim/vimfiles/syntax/plan.vim" "$(INTO)/share/vim/vimfiles/ftdetect/plan.vim"
clean:
	rm -rf build build-sanitize

always:
.PHONY: all setup demo test test-long deps-peers deps-nvidia bench bench-predict bench-published fuzz install uninstall clean always
.DELETE_ON_ERROR:
.SUFFIXES:
