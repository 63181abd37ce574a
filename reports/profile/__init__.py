"""Where does a step's time go?

Shows one profiled step. Other steps of the same model may differ.
"""
