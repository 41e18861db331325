"""Design: what a study can find, before data. In the order in which `design` goes through it:

    effects, assumptions    what is believed: SDs, correlations, the effects at which power is stated
    reach                   what no data could show with so many seeds: floors of p, verdicts out of reach
    scenarios               states of the world, and differences drawn from them
    simulate                these differences through `ablate.judge.judge` and the rule: the chance of every verdict
    power                   every claim true: power, detectable differences, seeds needed
    error_rate              the state of the world in which the rule errs most
    choice                  what a pilot that misses the best setting does to a tuned comparison
    characteristics         `simulate_design`: all of it in one record
    refusal, warnings       what registration refuses, and what it warns of
    retrospective           after data: what was planned next to what came

Each imports those above it and none below.
"""
