#!/usr/bin/env python3
"""Starts `planc run` on a terminal of its own and stops it as a person or a batch system would.
Prints what is wrong.

  terminal.py HOW PLANC NAME     writes NAME.jsonl, NAME.st, NAME.log in the working directory
"""
import os
import pty
import random
import signal
import subprocess
import sys
import time

how, planc, name = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    os.execv(planc, [planc, "run", "small.plan", "--", "--metrics", name + ".jsonl", "--final", name + ".st"])

log = open(name + ".log", "wb")


def drain(seconds):
    """Reads the terminal for so long; False when its other end is closed."""
    end = time.time() + seconds
    os.set_blocking(terminal, False)
    while time.time() < end:
        try:
            data = os.read(terminal, 65536)
            if not data:
                return False
            log.write(data)
            log.flush()
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return False
    return True


def lines():
    try:
        return open(name + ".jsonl", "rb").read().count(b"\n")
    except FileNotFoundError:
        return 0


began = time.time()
while lines() < 3 and time.time() < began + 120 and drain(0.1):
    pass
drain(random.random())
def children(parent):
    found = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True)
    return found.stdout.split()


mpirun = children(pid)
if how == "ctrl_c":
    os.write(terminal, b"\x03")
elif how == "twice_ctrl_c_ends":
    for rank in children(mpirun[0]):    # none of them comes to the end of a step
        os.kill(int(rank), signal.SIGSTOP)
    os.write(terminal, b"\x03")
    drain(1)
    os.write(terminal, b"\x03")
elif how == "twice_soon":               # while mpirun passes the first one on, or ends
    os.write(terminal, b"\x03")
    drain(float(os.environ["GAP"]))
    os.write(terminal, b"\x03")
elif how == "term":
    os.kill(pid, signal.SIGTERM)
elif how == "hangup":
    os.kill(pid, signal.SIGHUP)
else:
    os.kill(int(mpirun[0]), signal.SIGINT if how.startswith("int") else signal.SIGTERM)

began = time.time()
while True:
    drain(0.1)
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        break
    if time.time() > began + 60:
        sys.exit("still running after a minute")
status = os.waitstatus_to_exitcode(status)
text = open(name + ".log", "rb").read().decode(errors="replace")
said = {"ctrl_c": "SIGINT", "term": "SIGTERM", "hangup": "SIGHUP", "int_to_mpirun": "SIGINT", "term_to_mpirun": "SIGTERM"}.get(how)
if how == "twice_soon":
    if status not in (75, 137) or "fault" in text:
        print("status", status)
elif how.endswith("ends"):
    if status in (0, 75):
        print("status", status)
elif status != 75:
    print("status", status)
elif "planc: %s: " % said not in text:
    print("does not say", said)
