// Predicts from closed bars with eurusd.onnx: docs/guide/metatrader.md.
#property script_show_inputs

#define STEPS_M1 120
#define STEPS_H1 24
#define FEATURES 3
#define HORIZON  12

const long shape_m1[]  = {1, STEPS_M1, FEATURES};
const long shape_h1[]  = {1, STEPS_H1, FEATURES};
const long shape_out[] = {1, HORIZON};

// One bar more than the window: the first return needs the close before it.
bool ReadWindow(const ENUM_TIMEFRAMES timeframe, const int steps, matrixf &window)
  {
   MqlRates rates[];
   ArraySetAsSeries(rates, false);                  // the oldest bar first, as in training
   // From position 1: bar 0 has not closed yet, and training never saw such a bar.
   if(CopyRates(_Symbol, timeframe, 1, steps + 1, rates) != steps + 1)
      return(false);
   window.Init(steps, FEATURES);
   for(int t = 0; t < steps; t++)
     {
      const MqlRates bar = rates[t + 1];
      window[t][0] = (float)MathLog(bar.close / rates[t].close);    // log_return
      window[t][1] = (float)((bar.close - bar.open) / bar.close);   // body
      window[t][2] = (float)((bar.high - bar.low) / bar.close);     // range
     }
   return(true);
  }

void OnStart()
  {
   const long handle = OnnxCreate("eurusd.onnx", ONNX_DEFAULT);
   if(handle == INVALID_HANDLE)
     {
      Print("OnnxCreate: error ", GetLastError());
      return;
     }
   matrixf m1, h1;
   vectorf predictions(HORIZON);
   // Inputs have the order of the file: the shortest timeframe first.
   if(!OnnxSetInputShape(handle, 0, shape_m1) || !OnnxSetInputShape(handle, 1, shape_h1) || !OnnxSetOutputShape(handle, 0, shape_out))
      Print("the model has another shape: error ", GetLastError());
   else if(!ReadWindow(PERIOD_M1, STEPS_M1, m1) || !ReadWindow(PERIOD_H1, STEPS_H1, h1))
      Print("too few bars: error ", GetLastError());
   else if(!OnnxRun(handle, ONNX_NO_CONVERSION, m1, h1, predictions))
      Print("OnnxRun: error ", GetLastError());
   else
      for(int k = 0; k < HORIZON; k++)
         PrintFormat("in %d bars: %+.2f pips", k + 1, predictions[k]);
   OnnxRelease(handle);
  }
