"""How a decision is told: one account of it, rendered as Markdown, as one HTML file, and on the console.

Nothing here estimates, tests or decides; what is inferred comes from `ablate.judge` and is only worded here.
"""
