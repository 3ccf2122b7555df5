"""How to reach a server: its address, secrets and TLS, what is kept between questions, what is spread over time.

Begin with `security`: what an operator configures.
"""
