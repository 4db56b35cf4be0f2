"""What Prometheus and Grafana are given to watch Gemini by: rules (rules.py), dashboards (boards.py), both as data.

Pure: nothing here asks Prometheus, reads a metric or touches a file. Metrics are named where they are made
(scheduler_backend/metrics.py and the cluster parts); a test holds every name that is used here against them.
"""
