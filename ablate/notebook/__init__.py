"""Notebooks: what the functions of the API return and a notebook shows, decisions, judged tables, designs.

Nothing is computed.
"""
