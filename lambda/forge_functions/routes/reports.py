"""The paths of reports."""

from fastapi import APIRouter

router = APIRouter()
