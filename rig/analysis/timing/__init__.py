"""Put all clocks on one axis of seconds: when the device was busy, and when each reading was taken.

In: brackets, spans, marks, edges. Out: ``Activity`` and readings on the device's time. Imported by the analysis,
reports and doctor.
"""
